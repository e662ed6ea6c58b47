# SPDX-License-Identifier: Apache-2.0
"""What each preset makes of a dense tensor: the exact arithmetic of tests/quant/rational_test.py, block by block.

Finite weights only; what NaN and Inf do is tested where the rules are.
"""

import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "quant"))
import rational_test as exact  # noqa: E402

LARGEST = {"F32": 0x7F7FFFFF, "BF16": 0x7F7F0000, "F16": 0x477FE000}
STORED = {
    "F32": lambda s: struct.pack("<I", exact.to_bits(s)),
    "BF16": lambda s: struct.pack("<H", exact.to_bits(s) >> 16),
    "U8": lambda s: bytes([exact.log2_down(s) + 127]),
    "F8_E8M0": lambda s: bytes([exact.log2_down(s) + 127]),
}


def words(dtype, data):
    """FP32 bits of FP32, BF16 or FP16 bytes, widened exactly."""
    if dtype == "F32":
        return list(struct.unpack(f"<{len(data) // 4}I", data))
    if dtype == "BF16":
        return [half << 16 for half in struct.unpack(f"<{len(data) // 2}H", data)]
    values = struct.unpack(f"<{len(data) // 2}e", data)
    return list(struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values)))


def code_of(name, scale, form, ties_away, m, d, bits):
    x, sign = exact.fp32(bits & 0x7FFFFFFF), bits >> 24 & 0x80
    if name == "flashinfer-mxfp8" and exact.subnormal(x):
        x = exact.Fraction(0)
    if name == "te-mxfp8-fma" and x == 0:
        sign = 0
    y = exact.over(x, d) if d != 1 else exact.times(x, m)
    if name == "compressed-tensors-block" and scale == "bf16":
        y = exact.rounded(y, 8, -133)
    return form.code(y, ties_away) | sign


def quantize(preset, dtype, shape, data, floor=None):
    """Codes and scale bytes. preset: {"name", "scale", "element", "block", "floor", "stored"}, floor in FP32 bits."""
    name, scale = preset["name"], preset["scale"]
    form = exact.E5M2 if preset["element"].startswith("e5m2") else exact.E4M3
    height, width = map(int, preset["block"].split("x"))
    floor = exact.fp32(preset["floor"] if floor is None else floor)
    *batches, rows, cols = shape
    weights, input_max = words(dtype, data), exact.fp32(LARGEST[dtype])
    codes, scales = bytearray(len(weights)), bytearray()
    for b in range(batches[0] if batches else 1):
        for top in range(0, rows, height):
            for left in range(0, cols, width):
                bottom, right = min(top + height, rows), min(left + width, cols)
                places = [(b * rows + row) * cols + col for row in range(top, bottom) for col in range(left, right)]
                largest = max(weights[i] & 0x7FFFFFFF for i in places)
                if name == "nemo-block" and (bottom - top < height or right - left < width):
                    largest = max(largest, weights[(b + 1) * rows * cols - 1] & 0x7FFFFFFF)
                s, m, d = exact.rule(name, scale, form, max(exact.fp32(largest), floor), input_max)
                scales += STORED[preset["stored"]](s)
                cache = {}
                for i in places:
                    bits = weights[i]
                    if bits not in cache:
                        cache[bits] = code_of(name, scale, form, "ties=away" in preset["element"], m, d, bits)
                    codes[i] = cache[bits]
    return bytes(codes), bytes(scales)
