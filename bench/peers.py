#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same job by torch, torchao and NumPy with ml_dtypes, timed beside fp8wire_bench on the same machine, as a table.

    python3 -m venv peers && peers/bin/pip install torch torchao ml_dtypes numpy
    peers/bin/python bench/peers.py build/bench/fp8wire_bench

Peers get buffers that are allocated and touched beforehand where their interface takes any. What is not installed
is left
out and said. Times are medians; every peer is timed right before and right after fp8wire, so that a busy machine shows.
"""
import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time

ROWS, COLS = 4096, 4096


def have(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"{name} is not installed: its rows are left out", file=sys.stderr)
        return None


def median_ns(work, repetitions):
    work()
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e9 / (ROWS * COLS)


def torch_block(torch, weights):
    """amax, divide, clamp, cast: what a framework's Python does for 128x128 blocks."""
    codes = torch.empty(ROWS, COLS, dtype=torch.float8_e4m3fn)

    def work():
        blocks = weights.view(ROWS // 128, 128, COLS // 128, 128).float()
        scales = blocks.abs().amax(dim=(1, 3), keepdim=True).clamp(min=1e-10) / 448.0
        codes.copy_((blocks / scales).clamp(-448.0, 448.0).view(ROWS, COLS))
    return work


def torchao_mx(torch, weights):
    from torchao.prototype.mx_formats.config import ScaleCalculationMode
    from torchao.prototype.mx_formats.mx_tensor import to_mx
    return lambda: to_mx(weights, torch.float8_e4m3fn, 32, ScaleCalculationMode.RCEIL)


def numpy_block(numpy, ml_dtypes, weights):
    def work():
        blocks = weights.astype(numpy.float32).reshape(ROWS // 128, 128, COLS // 128, 128)
        scales = numpy.maximum(numpy.abs(blocks).max(axis=(1, 3), keepdims=True), 1e-10) / numpy.float32(448)
        return (blocks / scales).reshape(ROWS, COLS).astype(ml_dtypes.float8_e4m3fn)
    return work


def ours(bench, row, threads):
    """Nanoseconds an element of fp8wire's best body for a row, and the body's name."""
    pattern = f"^{row}/4096/(avx512|avx2|portable)/threads:{threads}/"
    environment = {**os.environ, "FP8WIRE_BENCH_MIB": str(ROWS * COLS * 2 >> 20)}
    out = subprocess.run([bench, f"--benchmark_filter={pattern}", "--benchmark_format=json"], env=environment,
                         stdout=subprocess.PIPE, check=True).stdout
    rows = {r["name"].split("/")[3]: r["ns_per_element"] for r in json.loads(out)["benchmarks"]}
    body = next(b for b in ("avx512", "avx2", "portable") if b in rows)  # the one that a caller gets
    return rows[body], body


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bench", help="path of fp8wire_bench")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], choices=[1, 2])
    options = parser.parse_args()
    torch, torchao = have("torch"), have("torchao")
    numpy, ml_dtypes = have("numpy"), have("ml_dtypes")
    print(f"BF16 {ROWS} x {COLS}, nanoseconds an element\n")
    print("| job | threads | peer | peer ns | fp8wire ns (body) | ratio |\n|---|---|---|---|---|---|")
    for threads in options.threads:
        peers = []
        if torch:
            torch.set_num_threads(threads)
            torch.manual_seed(1)
            weights = (torch.randn(ROWS, COLS) * 0.02).to(torch.bfloat16)
            peers.append(("bf16_e4m3_128x128/vllm", f"torch {torch.__version__}", torch_block(torch, weights)))
            if torchao:
                peers.append(("bf16_mxfp8_1x32/te", f"torchao {torchao.__version__}", torchao_mx(torch, weights)))
        if numpy and ml_dtypes and threads == 1:
            random = numpy.random.default_rng(1)
            values = (random.standard_normal((ROWS, COLS), dtype=numpy.float32) * 0.02).astype(ml_dtypes.bfloat16)
            name = f"numpy {numpy.__version__}, ml_dtypes {ml_dtypes.__version__}"
            peers.append(("bf16_e4m3_128x128/vllm", name, numpy_block(numpy, ml_dtypes, values)))
        for row, name, work in peers:
            before = median_ns(work, options.repetitions)
            mine, body = ours(options.bench, row, threads)
            after = median_ns(work, options.repetitions)
            peer = statistics.mean([before, after])
            print(f"| {row} | {threads} | {name} | {peer:.2f} | {mine:.3f} ({body}) | {peer / mine:.1f} |", flush=True)


if __name__ == "__main__":
    main()
