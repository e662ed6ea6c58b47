#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The example with a rule and an element of its own converts a file exactly.

Usage: custom_recipe_test.py CUSTOM_RECIPE
"""

import json
import os
import random
import struct
import subprocess
import sys
import tempfile
from fractions import Fraction


def write(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read(path):
    raw = open(path, "rb").read()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + length])
    return {
        name: (
            entry["dtype"],
            entry["shape"],
            raw[8 + length + entry["data_offsets"][0] : 8 + length + entry["data_offsets"][1]],
        )
        for name, entry in header.items()
        if name != "__metadata__"
    }


# Three exponent and four mantissa bits, bias 3, 7F is NaN.
VALUES = [
    Fraction(c & 15, 16) / 4 if c < 16 else (1 + Fraction(c & 15, 16)) * Fraction(2) ** ((c >> 4) - 3)
    for c in range(128)
]


def code(x):
    y, low = abs(x), 0
    for c in range(1, 127):
        tie = (VALUES[c - 1] + VALUES[c]) / 2
        if y > tie or (y == tie and c % 2 == 0):
            low = c
    return low | (0x80 if x < 0 else 0)


def expected(matrix, rows, cols):
    codes, scales = [[0] * cols for _ in range(rows)], []
    for top in range(0, rows, 64):
        for left in range(0, cols, 64):
            area = [(r, c) for r in range(top, min(rows, top + 64)) for c in range(left, min(cols, left + 64))]
            amax = max(abs(matrix[r * cols + c]) for r, c in area)
            k = -127
            while Fraction(2) ** k < amax / VALUES[126]:
                k += 1
            k += 1
            scales.append((k + 127 << 7) if k > -127 else 0x40)
            for r, c in area:
                codes[r][c] = code(matrix[r * cols + c] / Fraction(2) ** k)
    return bytes(sum(codes, [])), struct.pack("<%dH" % len(scales), *scales)


def main():
    program = os.path.abspath(sys.argv[1])
    random.seed(3)
    numbers = [random.gauss(0, 0.02) for _ in range(70 * 130)]
    numbers[:3] = [0.0, 1.5, -1.5]
    single = struct.pack("<%df" % len(numbers), *numbers)
    exact = [Fraction(x) for x in struct.unpack("<%df" % len(numbers), single)]
    half = b"".join(struct.pack("<f", x)[2:] for x in numbers[:64])
    tensors = {
        "a.weight": ("F32", [70, 130], single),
        "b.weight": ("BF16", [64, 1], half),
        "norm.weight": ("BF16", [2], b"ABCD"),
        "bias": ("F32", [1], b"1234"),
    }
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "in.safetensors"), os.path.join(folder, "out.safetensors")
        write(source, tensors)
        done = subprocess.run([program, source, target], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        out = read(target)
        assert sorted(out) == sorted([*tensors, "a.weight_scale", "b.weight_scale"]), sorted(out)
        codes, scales = expected(exact, 70, 130)
        assert out["a.weight"] == ("U8", [70, 130], codes)
        assert out["a.weight_scale"] == ("BF16", [2, 3], scales)
        codes, scales = expected(
            [Fraction(struct.unpack("<f", b"\0\0" + half[i : i + 2])[0]) for i in range(0, 128, 2)], 64, 1
        )
        assert out["b.weight"] == ("U8", [64, 1], codes) and out["b.weight_scale"] == ("BF16", [1, 1], scales)
        assert out["bias"] == tensors["bias"] and out["norm.weight"] == tensors["norm.weight"]
        before = open(target, "rb").read()
        done = subprocess.run([program, source, target], capture_output=True, text=True)
        assert done.returncode == 1 and "cannot create" in done.stderr, done.stderr
        assert open(target, "rb").read() == before
        tensors["a.weight"] = ("F32", [70, 130], struct.pack("<f", float("nan")) + single[4:])
        write(source, tensors)
        done = subprocess.run([program, source, target + "2"], capture_output=True, text=True)
        assert done.returncode == 1 and "a.weight: holds NaN or Inf" in done.stderr, done.stderr
        assert not os.path.exists(target + "2")
    print("converted as the exact arithmetic says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
