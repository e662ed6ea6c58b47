#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the presets against the real tools on the CPU and prints a table of mismatches.

usage: peers.py --program QUANTIZE_FILE [--venv FOLDER] [--blocks N] [--small] [--markdown FILE]

The peers (torch, torchao, compressed-tensors, ml_dtypes) are installed from PyPI into their own virtual environment, in
which this script then runs itself. --small takes ml_dtypes alone and fewer numbers, for every day. Exit status: 0 no
unexplained mismatch, 1 mismatches, 77 the packages cannot be had.
"""

import argparse
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import peer_environment  # noqa: E402

SMALL = ["numpy", "ml_dtypes==0.6.0"]
FULL = peer_environment.PACKAGES
ON_TORCH = [*peer_environment.ON_TORCH, "triton==3.9.0"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="quantize_file, built from tests/tools/quantize_file.cpp")
    parser.add_argument("--venv", help="where the peers live; made if missing (default: beside the program)")
    parser.add_argument(
        "--blocks", type=int, default=1 << 17, help="random blocks per preset, input type and kind of numbers"
    )
    parser.add_argument("--small", action="store_true", help="ml_dtypes only")
    parser.add_argument("--markdown", help="write the table there as well")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def enter_environment(options):
    """Makes the virtual environment and runs this script again inside it; returns its exit status."""
    folder = options.venv or os.path.join(
        os.path.dirname(os.path.abspath(options.program)), "peers-small" if options.small else "peers"
    )
    python, variables = peer_environment.enter(
        folder, SMALL if options.small else FULL, [] if options.small else ON_TORCH
    )
    if python is None:
        print("skipped: the peers cannot be installed from PyPI:", variables)
        return 77
    return subprocess.run([python, __file__, *sys.argv[1:], "--inside"], env=variables).returncode


class Ours:
    """The helper program: one preset, raw bytes in and out."""

    def __init__(self, program):
        self.program = os.path.abspath(program)

    def run(self, arguments, data):
        with tempfile.TemporaryFile() as inside, tempfile.TemporaryFile() as outside:
            inside.write(data)
            inside.seek(0)
            subprocess.run([self.program, *map(str, arguments)], stdin=inside, stdout=outside, check=True)
            outside.seek(0)
            return outside.read()


class Table:
    def __init__(self):
        self.rows, self.bad = [], False

    def add(self, preset, peer, data, compared, scales, codes, note=""):
        self.rows.append((preset, peer, data, compared, scales, codes, note))
        if (scales or codes) and not note:
            self.bad = True
        print("%-32s %-44s %-22s %12s %8d %8d %s" % self.rows[-1], flush=True)

    def markdown(self, versions):
        """One line per preset, peer and input type; the kinds of data are added up."""
        merged = {}
        for preset, peer, data, compared, scales, codes, note in self.rows:
            line = merged.setdefault((preset, peer, data.split()[0]), [0, 0, 0, ""])
            line[0] += compared
            line[1] += scales
            line[2] += codes
            line[3] = line[3] or note
        lines = [
            "Versions: " + ", ".join(versions) + ".",
            "",
            "| preset | peer | input | compared | scales differ | codes differ | why |",
            "|---|---|---|--:|--:|--:|---|",
        ]
        lines += ["| %s | %s | %s | %d | %d | %d | %s |" % (*key, *line) for key, line in merged.items()]
        return "\n".join(lines) + "\n"


def encoders_numpy(ours, table, count):
    import ml_dtypes
    import numpy as np

    random = np.random.default_rng(1)
    bits = np.concatenate(
        [np.arange(0, 1 << 32, 1 << 16, dtype=np.uint64), random.integers(0, 1 << 32, count, dtype=np.uint64)]
    )
    bits = bits.astype(np.uint32)
    values = bits.view(np.float32)
    with np.errstate(all="ignore"):
        for name, dtype in (
            ("e4m3-ml_dtypes", ml_dtypes.float8_e4m3fn),
            ("e5m2-ml_dtypes", ml_dtypes.float8_e5m2),
            ("e4m3fnuz-ml_dtypes", ml_dtypes.float8_e4m3fnuz),
            ("e5m2fnuz-ml_dtypes", ml_dtypes.float8_e5m2fnuz),
        ):
            theirs = values.astype(dtype).view(np.uint8)
            mine = np.frombuffer(ours.run(["--encode", name], bits.tobytes()), np.uint8)
            table.add(
                name.split("-")[0],
                "ml_dtypes astype",
                "FP32 patterns, NaN too",
                len(bits),
                0,
                int((theirs != mine).sum()),
            )


def main_inside(options):
    import warnings

    warnings.filterwarnings("ignore")
    ours, table = Ours(options.program), Table()
    import importlib.metadata as metadata

    names = [name.split("==")[0] for name in (SMALL if options.small else SMALL + ON_TORCH)]
    versions = ["%s %s" % (name, metadata.version(name)) for name in names]
    print("versions:", ", ".join(versions))
    print("%-32s %-44s %-22s %12s %8s %8s" % ("preset", "peer", "data", "compared", "scales", "codes"))
    encoders_numpy(ours, table, 1 << 18 if options.small else 1 << 24)
    if not options.small:
        with_torch(ours, table, options.blocks)
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(table.markdown(versions))
    total = sum(row[3] for row in table.rows)
    print("%d comparisons, %s" % (total, "UNEXPLAINED MISMATCHES" if table.bad else "no unexplained mismatch"))
    return 1 if table.bad else 0


def with_torch(ours, table, blocks):
    import numpy as np
    import torch

    torch.manual_seed(5)
    f8, f32 = torch.float8_e4m3fn, torch.float32
    MAX = 448.0

    # ---- torch's own conversions
    bits = torch.cat([torch.arange(0, 1 << 16, dtype=torch.int64) << 16, torch.randint(0, 1 << 32, (1 << 24,))])
    bits = torch.where(bits >= 1 << 31, bits - (1 << 32), bits).to(torch.int32)
    for name, dtype in (
        ("e4m3-torch", f8),
        ("e5m2-torch", torch.float8_e5m2),
        ("e4m3fnuz-torch", torch.float8_e4m3fnuz),
        ("e5m2fnuz-torch", torch.float8_e5m2fnuz),
        ("e8m0-torch", torch.float8_e8m0fnu),
    ):
        theirs = bits.view(f32).to(dtype).view(torch.uint8).numpy()
        mine = np.frombuffer(ours.run(["--encode", name], bits.numpy().tobytes()), np.uint8)
        table.add(
            name.split("-")[0], "torch.Tensor.to", "FP32 patterns, NaN too", len(theirs), 0, int((theirs != mine).sum())
        )

    # ---- data: one block a row
    most = 1 << 24  # elements at once

    def random_blocks(kind, width, dtype, count):
        if kind == "gaussian":
            return (torch.randn(count, width) * 0.02).to(dtype)
        if kind == "all magnitudes":
            exponent = torch.randint(-126, 127, (count, 1)).double()
            x = torch.randn(count, width).double() * torch.exp2(exponent)
            return x.clamp(-3e38, 3e38).float().to(dtype)
        # Edge amaxima beside small, equal and zero neighbours, every finite BF16 magnitude among them.
        special = [
            0,
            1,
            0x400000,
            0x400001,
            0x7FFFFF,
            0x800000,
            0x3800000,
            0x3E00000,
            0x3E00001,
            0x4600000,
            0x4600001,
            0x4DFFFFF,
            0x4E00000,
            0x2B8CBCCC,
            0x2EDBE6FF,
            0x38D1B717,
            0x3B124925,
            0x3F800000,
            0x3FE00000,
            0x3FE00001,
            0x43E00000,
            0x43E80001,
            0x7F600000,
            0x7F780000,
            0x7F7F0000,
        ]
        amax = torch.tensor(special + [m << 16 for m in range(0x7F80)], dtype=torch.int32).view(f32)
        x = amax[:, None] * torch.rand(len(amax), width)
        x[:, 0], x[:, 1], x[:, 2], x[:, 3] = amax, -amax, 0.0, -0.0
        x[:, 4] = amax / 2
        return x.to(dtype)

    def nonfinite_blocks(width, dtype):
        x = torch.randn(64, width)
        x[0::4, 1] = float("inf")
        x[1::4, 2] = float("-inf")
        x[2::4, 3] = float("nan")
        x[3::4, 4], x[3::4, 5] = float("nan"), float("inf")
        return x.to(dtype)

    def compare(
        preset,
        scale,
        peer_name,
        peer,
        width,
        dtypes=(torch.bfloat16, f32),
        shape=None,
        explained=None,
        kinds=None,
        stored=np.uint32,
    ):
        """peer(x) -> codes, scales of x: a block a row (or a matrix of that shape)."""
        for dtype in dtypes:
            tag = {torch.bfloat16: "bf16", f32: "f32", torch.float16: "f16"}[dtype]
            for kind in kinds or ("gaussian", "all magnitudes", "edges", "Inf and NaN"):
                compared, wrong, notes = 0, [0, 0], set()
                left = blocks if kind in ("gaussian", "all magnitudes") and not shape else 1
                while left > 0:
                    count = min(left, most // width)
                    left -= count
                    if shape:
                        x = (torch.randn(*shape) * 0.02).to(dtype)
                    elif kind == "Inf and NaN":
                        x = nonfinite_blocks(width, dtype)
                    else:
                        x = random_blocks(kind, width, dtype, count)
                    scales, codes, note = difference(preset, scale, peer, x, shape, explained, stored)
                    compared += x.numel()
                    wrong[0] += scales
                    wrong[1] += codes
                    if scales or codes:
                        notes.add(note)
                # One mismatch without an explanation is enough to fail.
                where = "%s %s" % (tag, "x".join(map(str, shape)) if shape else kind)
                name = preset + ("" if scale == "-" else " (%s)" % scale)
                table.add(name, peer_name, where, compared, *wrong, "" if "" in notes else " ".join(notes))

    def difference(preset, scale, peer, x, shape, explained, stored):
        """How many scales and codes differ, and the explanation that was checked on each block."""
        if preset.startswith("nemo-block") and not shape:
            x.view(-1)[-1] = 0  # it pads ragged blocks with the last element; that has a row of its own below
        codes, scales = peer(x.clone())
        codes = codes.contiguous().view(torch.uint8).numpy().reshape(-1)
        scales = scales.contiguous()
        scales = scales.view({np.uint32: torch.int32, np.uint16: torch.int16, np.uint8: torch.uint8}[stored])
        scales = scales.numpy().view(stored).reshape(-1)
        # Each row is a matrix row whose blocks end with it: one long row of ragged blocks.
        rows, cols = shape if shape else (1, x.numel())
        tag, words = {
            torch.bfloat16: ("bf16", torch.int16),
            f32: ("f32", torch.int32),
            torch.float16: ("f16", torch.int16),
        }[x.dtype]
        out = ours.run([preset, scale, "-", "-", tag, rows, cols], x.contiguous().view(words).numpy().tobytes())
        mine_codes = np.frombuffer(out[: x.numel()], np.uint8)
        mine_scales = np.frombuffer(out[x.numel() :], stored)
        assert len(mine_scales) == len(scales), (preset, len(mine_scales), len(scales))
        # NaN has no sign here, and one payload.
        canonical = lambda c: np.where((c & 0x7F) == 0x7F, 0x7F, c)
        if stored == np.uint32:
            nan = lambda s: np.where((s & 0x7FFFFFFF) > 0x7F800000, 0x7FC00000, s)
            scales, mine_scales = nan(scales), nan(mine_scales)
        if stored == np.uint16:
            nan = lambda s: np.where((s & 0x7FFF) > 0x7F80, 0x7FC0, s)
            scales, mine_scales = nan(scales), nan(mine_scales)
        wrong_scales = scales != mine_scales
        wrong_codes = canonical(codes) != canonical(mine_codes)
        note = ""
        if (wrong_scales.any() or wrong_codes.any()) and explained and not shape:
            by_row = wrong_scales | wrong_codes.reshape(len(x), -1).any(axis=1)
            note = explained(x[torch.from_numpy(by_row)])
        return int(wrong_scales.sum()), int(wrong_codes.sum()), note

    # ---- explanations that are checked, block by block
    def near_power(quotient, ulps=64):
        pattern = quotient.float().view(torch.int32)
        return ((pattern & 0x7FFFFF) <= ulps) | ((pattern & 0x7FFFFF) >= 0x800000 - ulps)

    def log2_of_quotient(x):
        quotient = x.float().abs().amax(dim=1) / MAX
        return "log2f of a quotient near a power of two" if bool(near_power(quotient).all()) else ""

    def log2_of_amax(x):
        return "log2f of an amax near a power of two" if bool(near_power(x.float().abs().amax(dim=1)).all()) else ""

    def infinite_scale(x):
        beyond = (x.float().abs().amax(dim=1).view(torch.int32) >= 0x7F600000).all()
        return "amax from 1.75 * 2^127 on: the tool's scale is Inf, its byte an Inf cast to int" if bool(beyond) else ""

    # ---- tools whose Python is one expression, evaluated by this torch (sources in docs/numerics.md)
    def amax_of(x):
        return x.abs().float().amax(dim=1, keepdim=True)

    def to_e4m3(x):
        return x.clamp(-MAX, MAX).to(f8)

    def deepgemm(x, pow2):
        scale = amax_of(x).clamp(1e-4) / MAX
        if pow2:
            pattern = scale.view(torch.int32)
            exponent = ((pattern >> 23) & 255) + (pattern & 0x7FFFFF).bool().int()
            scale = (exponent.clamp(1, 254) << 23).view(f32)
        return (x * (1.0 / scale)).to(f8), scale

    def nemo(x, pow2):
        amax = amax_of(x)
        if pow2:
            exponent = torch.clamp(torch.ceil(torch.log2(amax / MAX)), -127, 127) + 127
            byte = exponent.to(torch.uint8)
            scale = torch.where(byte == 0, 1.0, torch.exp2(127 - byte.to(f32)))
        else:
            scale = MAX / amax
            scale = torch.where(amax == 0, 1.0, scale)
            scale = torch.where(amax == torch.inf, 1.0, scale)
        return to_e4m3(x.float() * scale), torch.reciprocal(scale)

    def nemo_matrix(x, pow2):
        rows, cols = x.shape
        padded = torch.nn.functional.pad(x, (0, -cols % 128, 0, -rows % 128), value=x[-1, -1].item())
        tiles = padded.reshape(padded.shape[0] // 128, 128, padded.shape[1] // 128, 128).permute(0, 2, 1, 3)
        codes, scales = nemo(tiles.reshape(-1, 128 * 128), pow2)
        codes = codes.view(torch.uint8).reshape(*tiles.shape).permute(0, 2, 1, 3).reshape(padded.shape)[:rows, :cols]
        return codes, scales

    def skyrl(x, pow2):
        scale = amax_of(x).clamp(min=1e-10) / MAX
        if pow2:
            scale = torch.pow(2.0, torch.ceil(torch.log2(scale)))
        return to_e4m3(x.float() / scale), scale

    def skyrl_mx(x):
        exponent = torch.clamp(torch.ceil(torch.log2(amax_of(x) / MAX)), -127, 127)
        return to_e4m3(x.float() * torch.exp2(-exponent)), (exponent + 127).to(torch.uint8)

    def vllm_mx(x, bias):
        amax = amax_of(x).clamp(min=torch.finfo(f32).tiny)
        biased = (torch.floor(torch.log2(amax)) if bias else torch.ceil(torch.log2(amax / MAX))) + 127.0
        biased = biased.clamp(0, 254)
        return (x.float() / torch.exp2(biased - 127.0)).to(f8), biased.to(torch.uint8)

    expression = "torch 2.15 CPU, the tool's expression"
    finite = ("gaussian", "all magnitudes", "edges")
    compare("deepgemm-block-cpu", "-", expression, lambda x: deepgemm(x, False), 128)
    compare("deepgemm-block-cpu", "pow2", expression, lambda x: deepgemm(x, True), 128)
    compare("nemo-block", "-", expression, lambda x: nemo(x, False), 128)
    compare("nemo-block", "pow2", expression, lambda x: nemo(x, True), 128, explained=log2_of_quotient)
    for pow2 in (False, True):
        compare(
            "nemo-block",
            "pow2" if pow2 else "fp32",
            expression + ", padded",
            lambda x: nemo_matrix(x, pow2),
            128,
            shape=(300, 200),
            kinds=("gaussian",),
        )
    compare("skyrl-block-cpu", "-", expression, lambda x: skyrl(x, False), 128)
    compare("skyrl-block-cpu", "pow2", expression, lambda x: skyrl(x, True), 128, explained=log2_of_quotient)
    compare("skyrl-mxfp8", "-", expression, skyrl_mx, 32, explained=log2_of_quotient, kinds=finite, stored=np.uint8)
    compare(
        "vllm-mxfp8-fallback", "-", expression, lambda x: vllm_mx(x, True), 32, explained=log2_of_amax, stored=np.uint8
    )
    compare("vllm-mxfp8", "-", expression, lambda x: vllm_mx(x, False), 32, explained=log2_of_quotient, stored=np.uint8)

    # ---- torchao
    from torchao.prototype.blockwise_fp8_training import kernels as blockwise
    from torchao.prototype.mx_formats.config import ScaleCalculationMode
    from torchao.prototype.mx_formats.mx_tensor import to_mx

    compare(
        "torchao-block",
        "-",
        "torchao torch_blockwise_scale_act_quant_lhs",
        lambda x: blockwise.torch_blockwise_scale_act_quant_lhs(x),
        128,
    )
    compare(
        "torchao-block",
        "-",
        "torchao torch_blockwise_scale_weight_quant",
        lambda x: blockwise.torch_blockwise_scale_weight_quant(x),
        128,
        shape=(1024, 1280),
        kinds=("gaussian",),
    )
    for mode in ("FLOOR", "RCEIL", "CEIL", "EVEN"):

        def torchao_mx(x, mode=mode):
            scales, codes = to_mx(x, f8, 32, getattr(ScaleCalculationMode, mode))
            return codes, scales

        compare(
            "torchao-mxfp8-" + mode.lower(),
            "-",
            "torchao to_mx " + mode,
            torchao_mx,
            32,
            explained=log2_of_quotient if mode == "RCEIL" else None,
            stored=np.uint8,
        )

    # ---- compressed-tensors
    from compressed_tensors.compressors.mx_utils import compress_mx_scale
    from compressed_tensors.quantization import QuantizationArgs, QuantizationStrategy
    from compressed_tensors.quantization.lifecycle.forward import quantize as ct_quantize
    from compressed_tensors.quantization.utils.helpers import calculate_qparams

    block_args = QuantizationArgs(
        num_bits=8, type="float", strategy=QuantizationStrategy.BLOCK, block_structure=[128, 128]
    )
    mx_args = QuantizationArgs(
        num_bits=8, type="float", strategy=QuantizationStrategy.GROUP, group_size=32, scale_dtype=torch.uint8
    )

    def compressed_rows(x, arguments):
        # A row is a block: per-channel arithmetic is the same and takes any number of them.
        scale, zero = calculate_qparams(x.amin(dim=1, keepdim=True), x.amax(dim=1, keepdim=True), arguments)
        channel = QuantizationArgs(num_bits=8, type="float", strategy=QuantizationStrategy.CHANNEL)
        return ct_quantize(x, scale, None, channel, dtype=f8), scale

    def compressed_blocks(x):
        tiles = x.reshape(x.shape[0] // 128, 128, x.shape[1] // 128, 128)
        scale, zero = calculate_qparams(tiles.amin(dim=(1, 3)), tiles.amax(dim=(1, 3)), block_args)
        return ct_quantize(x, scale, None, block_args, dtype=f8), scale

    def compressed_mx(x):
        codes, scale = compressed_rows(x, mx_args)
        return codes, compress_mx_scale(scale, torch.uint8)

    for dtype, scale, stored in ((torch.bfloat16, "bf16", np.uint16), (f32, "fp32", np.uint32)):
        compare(
            "compressed-tensors-block",
            scale,
            "compressed-tensors calculate_qparams, quantize",
            lambda x: compressed_rows(x, block_args),
            128,
            dtypes=(dtype,),
            stored=stored,
        )
        compare(
            "compressed-tensors-block",
            scale,
            "the same with strategy block",
            compressed_blocks,
            128,
            dtypes=(dtype,),
            shape=(512, 768),
            kinds=("gaussian",),
            stored=stored,
        )
    compare(
        "compressed-tensors-mxfp8",
        "-",
        "compressed-tensors calculate_qparams, compress",
        compressed_mx,
        32,
        kinds=finite,
        explained=infinite_scale,
        stored=np.uint8,
    )


if __name__ == "__main__":
    options = arguments()
    sys.exit(main_inside(options) if options.inside else enter_environment(options))
