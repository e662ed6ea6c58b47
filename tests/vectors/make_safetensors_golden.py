#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes safetensors_golden.json: headers made by the safetensors package (pip install safetensors==0.8.0 numpy)."""
import json
import pathlib
import random

import numpy
import safetensors

TORCH = {  # the package's names for the format's dtypes
    "BOOL": ("bool", 8), "U8": ("uint8", 8), "I8": ("int8", 8), "F8_E5M2": ("float8_e5m2", 8),
    "F8_E4M3": ("float8_e4m3fn", 8), "F8_E8M0": ("float8_e8m0fnu", 8), "F8_E4M3FNUZ": ("float8_e4m3fnuz", 8),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 8), "I16": ("int16", 16), "U16": ("uint16", 16), "F16": ("float16", 16),
    "BF16": ("bfloat16", 16), "I32": ("int32", 32), "U32": ("uint32", 32), "F32": ("float32", 32),
    "C64": ("complex64", 64),
    "F64": ("float64", 64), "I64": ("int64", 64), "U64": ("uint64", 64),
}


def head(tensors, metadata):
    """The file's bytes up to the data, as the package writes them."""
    specs, alive = {}, []
    for name, dtype, shape in tensors:
        size = TORCH[dtype][1] // 8
        for extent in shape:
            size *= extent
        data = numpy.zeros(size + 1, dtype=numpy.uint8)
        alive.append(data)
        specs[name] = safetensors.TensorSpec(
            dtype=TORCH[dtype][0], shape=shape, data_ptr=data.ctypes.data, data_len=size)
    file = bytes(safetensors.serialize(specs, metadata or None))
    return file[:8 + int.from_bytes(file[:8], "little")]


def cases():
    block = [("l.weight", "F8_E4M3", [130, 256]), ("l.weight_scale_inv", "F32", [2, 2]), ("l.bias", "BF16", [130])]
    yield block, {"format": "pt"}
    mx = [("l.weight", "F8_E4M3", [3, 64]), ("l.weight_scale", "U8", [3, 2]), ("m.weight_scale", "F8_E8M0", [3, 2])]
    yield mx, {}
    yield [], {}
    yield [], {"only": "metadata"}
    yield [(f"t.{dtype}", dtype, [1 + i % 3]) for i, dtype in enumerate(TORCH)], {}
    yield [("scalar", "BF16", []), ("none", "F32", [0, 7]), ("\u00e9\u4e2d\U0001F600", "U8", [1]),
           ("w\x1f\n\"\\/\x7f\x00", "U8", [2]), ("", "U8", [3])], {"\u00e9\n\"\\/": "\x1f\x7f\b\f\r\t\x0b"}
    rng = random.Random(1)
    for count in (1, 2, 3, 5, 9, 40):
        tensors = {}
        for _ in range(count):
            name = "".join(rng.choice("ab.\u00e9_0") for _ in range(rng.randrange(1, 9)))
            tensors[name] = (name, rng.choice(list(TORCH)), [rng.randrange(4) for _ in range(rng.randrange(4))])
        yield list(tensors.values()), ({"seed": "1"} if count % 2 else {})


rows = []
for tensors, metadata in cases():
    rows.append(json.dumps({"tensors": tensors, "metadata": metadata, "head_hex": head(tensors, metadata).hex()}))
pathlib.Path(__file__).with_name("safetensors_golden.json").write_text("[\n" + ",\n".join(rows) + "\n]\n")
