#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What fp8-convert makes, read by others: safetensors, transformers, compressed-tensors, torch, torchao.

Every reader's weights must equal those of the library, bit for bit. Prints a table; exit 77 (skipped) where PyPI cannot
be reached. Usage: readers_test.py FP8_CONVERT DEQUANTIZE_FILE FOLDER; the packages are kept in FOLDER, of the build.
"""

import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import peer_environment  # noqa: E402
import tensors  # noqa: E402
import tiny_models  # noqa: E402

# What each column's folder is made with, and how its scales are told to dequantize_file.
FORMATS = {
    "block": (["--recipe", "vllm-block"], "fp32"),
    "block, E8M0": (["--recipe", "deepgemm-block", "--scale", "e8m0"], "e8m0"),
    "block, CT": (["--recipe", "compressed-tensors-block", "--naming", "compressed-tensors"], "bf16"),
    "MXFP8, CT": (["--recipe", "compressed-tensors-mxfp8", "--naming", "compressed-tensors"], "mx"),
    "MXFP8": (["--recipe", "te-mxfp8"], "mx"),
}


class Converted:
    """A converted folder and what the library reads from it."""

    def __init__(self, programs, source, name, form, folder):
        self.convert, self.dequantize = programs
        self.folder, (options, self.scales) = folder, FORMATS[form]
        if tiny_models.MODELS[name][0] == "bert" and self.scales == "bf16":
            options, self.scales = [*options, "--scale", "fp32"], "fp32"  # FP32 weights have FP32 scales
        subprocess.run([self.convert, "--force", *options, source, folder], check=True, capture_output=True)
        self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.content = {}
        for shard in sorted(folder.glob("*.safetensors")):
            self.content.update(tensors.load(shard)[0])
        names = {one for one in self.content if "_scale" in one.rpartition(".")[2]}
        self.pairs = {}
        for scale in names:
            stem = scale[: scale.rindex("_scale")]
            self.pairs[stem] = scale

    def weights(self, name, out):
        """The library's own, as bytes of BF16 or F32."""
        _, shape, codes = self.content[name]
        _, grid, scales = self.content[self.pairs[name]]
        batch = shape[0] if len(shape) == 3 else 1
        whole = b""
        for one in range(batch):
            part = [data[one * len(data) // batch : (one + 1) * len(data) // batch] for data in (codes, scales)]
            whole += subprocess.run(
                [self.dequantize, self.scales, out.lower(), *map(str, shape[-2:])],
                input=b"".join(part),
                check=True,
                capture_output=True,
            ).stdout
        return whole

    def unquantized(self, source, folder, out):
        """A folder of the library's weights under the original's names and config.json."""
        shutil.copytree(source, folder)
        for shard in folder.glob("*.safetensors"):
            content = tensors.load(shard)[0]
            for name in set(content) & set(self.pairs):
                content[name] = (out, content[name][1], self.weights(name, out))
            tensors.save(shard, content, {"format": "pt"})
        return folder


def read_safetensors(made):
    import safetensors
    import torch

    seen = 0
    for shard in sorted(made.folder.glob("*.safetensors")):
        with safetensors.safe_open(shard, "pt") as file:
            for name in file.keys():
                dtype, shape, data = made.content[name]
                tensor = file.get_tensor(name)
                assert list(tensor.shape) == shape, name
                assert bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy()) == data, name
                assert file.get_slice(name).get_dtype() == dtype, name
                seen += 1
    assert seen == len(made.content)
    return seen


def same(torch, theirs, mine, name):
    assert theirs.dtype == mine.dtype and theirs.shape == mine.shape, (name, theirs.dtype, theirs.shape, mine.shape)
    kind = {2: torch.int16, 4: torch.int32}[theirs.element_size()]
    differ = int((theirs.contiguous().view(kind) != mine.contiguous().view(kind)).sum())
    assert differ == 0, f"{name}: {differ} of {theirs.numel()} weights differ"


def load_model(folder, **options):
    import transformers

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    dtype = "float32" if config["model_type"] == "bert" else "bfloat16"
    model, info = getattr(transformers, config["architectures"][0]).from_pretrained(
        folder, dtype=dtype, output_loading_info=True, **options
    )
    assert not info["missing_keys"] and not info["mismatched_keys"], info
    return model.state_dict()


def read_transformers(made, source, scratch):
    """The whole folder, dequantized on the way in, against the same folder of the library's weights."""
    import torch
    import transformers

    method = made.config["quantization_config"]["quant_method"]
    options = transformers.FineGrainedFP8Config(dequantize=True) if method == "fp8" else None
    if method == "compressed-tensors":
        options = transformers.CompressedTensorsConfig(dequantize=True)
    theirs = load_model(made.folder, quantization_config=options)
    out = "F32" if made.config["model_type"] == "bert" else "BF16"
    mine = load_model(made.unquantized(source, scratch, out))
    assert theirs.keys() == mine.keys()
    for name in mine:
        if name in made.pairs and not name.endswith(".weight"):
            # Experts in one 3-D tensor: only FP8 modules, which want a GPU, take scales for these; a dequantized model
            # drops them. The operation that dequantizes is asked instead.
            from transformers.integrations.finegrained_fp8 import Fp8Dequantize

            codes, scales = to_torch(torch, made, name, None), to_torch(torch, made, made.pairs[name], None)
            theirs[name] = Fp8Dequantize(None)._dequantize_one(codes, scales, mine[name].dtype)
        # What stands in FP32 in the file may stay so beside quantized weights.
        same(torch, theirs[name].to(mine[name].dtype), mine[name], name)
    return len(mine)


def to_torch(torch, made, name, dtype):
    kinds = {"F8_E4M3": torch.float8_e4m3fn, "F32": torch.float32, "BF16": torch.bfloat16, "U8": torch.uint8}
    kinds["F8_E8M0"] = torch.float8_e8m0fnu
    stored, shape, data = made.content[name]
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype or kinds[stored]).reshape(shape)


def library_weights(torch, made, name, out):
    data = torch.frombuffer(bytearray(made.weights(name, out)), dtype=torch.uint8)
    return data.view(torch.float32 if out == "F32" else torch.bfloat16).reshape(made.content[name][1])


def read_compressed_tensors(made):
    """The config's own scheme and compressor, module by module."""
    import torch
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig

    config = QuantizationConfig.model_validate(made.config["quantization_config"])
    scheme = next(iter(config.config_groups.values()))
    compressor = BaseCompressor.get_value_from_registry(config.format)
    for name, scale in made.pairs.items():
        codes, scales = to_torch(torch, made, name, None), to_torch(torch, made, scale, None)
        mine = library_weights(torch, made, name, "F32")
        for one in range(codes.shape[0] if codes.dim() == 3 else 1):
            at = (one,) if codes.dim() == 3 else ...
            state = {"weight": codes[at], "weight_scale": scales[at]}
            weight = compressor.decompress(state, scheme)["weight"]
            # It computes in the dtype of the scales.
            same(torch, weight, mine[at].to(weight.dtype), name)
    return len(made.pairs)


def read_torch(made):
    import torch

    for name, scale in made.pairs.items():
        codes, scales = to_torch(torch, made, name, None), to_torch(torch, made, scale, torch.float8_e8m0fnu)
        weight = codes.float() * scales.float().repeat_interleave(32, dim=-1)
        same(torch, weight, library_weights(torch, made, name, "F32"), name)
    return len(made.pairs)


def read_torchao(made):
    import torch
    from torchao.prototype.mx_formats.mx_tensor import to_dtype

    for name, scale in made.pairs.items():
        codes, scales = to_torch(torch, made, name, None), to_torch(torch, made, scale, torch.float8_e8m0fnu)
        for out, dtype in (("F32", torch.float32), ("BF16", torch.bfloat16)):
            weight = to_dtype(codes, scales, torch.float8_e4m3fn, 32, dtype)
            same(torch, weight, library_weights(torch, made, name, out), name)
    return len(made.pairs)


COLUMNS = [
    ("safetensors", "block"),
    ("safetensors", "block, E8M0"),
    ("safetensors", "MXFP8"),
    ("transformers", "block"),
    ("transformers", "block, E8M0"),
    ("transformers", "block, CT"),
    ("transformers", "MXFP8, CT"),
    ("compressed-tensors", "block, CT"),
    ("compressed-tensors", "MXFP8, CT"),
    ("torch", "MXFP8"),
    ("torchao", "MXFP8"),
]


def inside(programs):
    import warnings

    warnings.filterwarnings("ignore")
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    versions = {name: importlib.metadata.version(name) for name, _ in dict(COLUMNS).items()}
    print("tensors read and found equal to the library's; " + ", ".join(" ".join(one) for one in versions.items()))
    print("%-14s %s" % ("", " ".join("%-18s" % reader for reader, _ in COLUMNS)))
    print("%-14s %s" % ("model_type", " ".join("%-18s" % form for _, form in COLUMNS)), flush=True)
    failures = []
    for name in tiny_models.MODELS:
        with tempfile.TemporaryDirectory() as scratch:
            scratch, cells, made = pathlib.Path(scratch), [], {}
            # transformers tells blocks from the ratio of shapes, and so reads evenly filled ones alone.
            source = scratch / "source"
            tiny_models.write(source, name, sizes=tiny_models.WHOLE)
            for form in FORMATS:
                made[form] = Converted(programs, source, name, form, scratch / form.replace(", ", "-"))
            for number, (reader, form) in enumerate(COLUMNS):
                if reader == "transformers" and "CT" in form and any(".experts.0." in one for one in made[form].pairs):
                    cells.append("-")  # it multiplies an expert's codes by its scales as they are: no blocks
                    continue
                try:
                    if reader == "transformers":
                        seen = read_transformers(made[form], source, scratch / f"ours{number}")
                    else:
                        seen = globals()["read_" + reader.replace("-", "_")](made[form])
                    cells.append(str(seen))
                except Exception as problem:  # every kind of failure of a reader is one of the table
                    cells.append("FAILED")
                    failures.append(f"{name}, {reader}, {form}: {type(problem).__name__}: {str(problem)[:500]}")
            print("%-14s %s" % (name, " ".join("%-18s" % cell for cell in cells)), flush=True)
    for failure in failures:
        print(failure)
    print("%d failures" % len(failures))
    return 1 if failures else 0


def report(text, code):
    """Prints the table, and leaves it beside the packages for whoever collects it."""
    print(text)
    pathlib.Path(sys.argv[3] + ".txt").write_text(text + "\n", encoding="utf-8")
    return code


def main():
    programs = [str(pathlib.Path(path).resolve()) for path in sys.argv[1:3]]
    if sys.argv[4:] == ["--inside"]:
        return inside(programs)
    if shutil.disk_usage(pathlib.Path(sys.argv[3]).parent).free < 4 << 30:
        return report("SKIPPED: torch and the packages on it need 4 GiB of disk, and less is free", 77)
    python, variables = peer_environment.with_torch(sys.argv[3])
    if python is None:
        return report("SKIPPED: the readers cannot be had from PyPI: " + variables, 77)
    command = [python, __file__, *programs, sys.argv[3], "--inside"]
    outcome = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True)
    return report(outcome.stdout.strip(), outcome.returncode)


if __name__ == "__main__":
    sys.exit(main())
