# SPDX-License-Identifier: Apache-2.0
"""What each preset makes of a matrix, in rational numbers: written from the tools' formulas, apart from the library.

Finite weights only; what NaN and Inf do is tested where the rules are.
"""
import bisect
import struct
from fractions import Fraction


def f32(value):
    """A rational number rounded to FP32, to nearest even, subnormals kept, beyond the largest to infinity."""
    if value == 0:
        return Fraction(0)
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    step = Fraction(2) ** (max(exponent, -126) - 23)
    rounded = round(size / step) * step  # Python rounds halves to even
    if rounded >= Fraction(2) ** 128:
        return float("inf") if value > 0 else float("-inf")
    return rounded if value > 0 else -rounded


def bits(value):
    return struct.unpack("<I", struct.pack("<f", float(value)))[0]


E4M3 = [Fraction(code & 7, 512) if code < 8 else Fraction(8 + (code & 7), 8) * Fraction(2) ** ((code >> 3) - 7)
        for code in range(127)]
# Between two codes; a tie goes to the even code.
MIDDLES = [(low + high) / 2 for low, high in zip(E4M3, E4M3[1:])]


def e4m3(value, negative):
    """The saturating code of a rational number whose sign is given apart, for -0."""
    size = abs(value)
    code = bisect.bisect_left(MIDDLES, size)  # MIDDLES[code - 1] < size <= MIDDLES[code]
    if code < len(MIDDLES) and size == MIDDLES[code] and code % 2 == 1:
        code += 1
    return code | (0x80 if negative else 0)


def exponent_up(value):
    """The byte of the smallest power of two that is not below value, within 0..254."""
    if value == 0:
        return 0
    exponent = value.numerator.bit_length() - value.denominator.bit_length() - 2
    while Fraction(2) ** exponent < value:
        exponent += 1
    return min(max(exponent + 127, 0), 254)


def pow2_down(value):
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** exponent > value:
        exponent -= 1
    return Fraction(2) ** exponent


def vllm_block(amax, largest_input):
    scale = f32(amax / 448) or Fraction(1)
    return scale, lambda x: f32(x / scale)


def te_block(amax, largest_input):
    scale = Fraction(1) if amax == 0 else f32(448 / amax)
    if scale == float("inf"):
        scale = largest_input
    return f32(1 / scale), lambda x: f32(x * scale)


def te_block_pow2(amax, largest_input):
    scale = Fraction(1) if amax == 0 else f32(448 / amax)
    scale = pow2_down(largest_input if scale == float("inf") else scale)
    return f32(1 / scale), lambda x: f32(x * scale)


def te_mxfp8(amax, largest_input):
    byte = exponent_up(f32(amax * f32(Fraction(1, 448))))
    return byte, lambda x: f32(x * Fraction(2) ** (127 - byte))


# name, scale: rule, block, default amax floor, scale dtype
PRESETS = {
    ("vllm-block", "fp32"): (vllm_block, (128, 128), 1e-10, "F32"),
    ("te-block", "fp32"): (te_block, (128, 128), 0.0, "F32"),
    ("te-block", "pow2"): (te_block_pow2, (128, 128), 0.0, "F32"),
    ("te-mxfp8", "e8m0"): (te_mxfp8, (1, 32), 0.0, "U8"),
}
LARGEST = {"F32": Fraction(2) ** 128 - Fraction(2) ** 104, "BF16": Fraction(2) ** 128 - Fraction(2) ** 120, "F16": Fraction(65504)}


def quantize(preset, values, shape, dtype, floor=None):
    """Codes and scale bytes of a dense tensor of floats; shape has 2 or 3 extents."""
    rule, (height, width), default, scale_dtype = PRESETS[preset]
    floor = Fraction(struct.unpack("<f", struct.pack("<f", default if floor is None else floor))[0])
    *batch, rows, cols = shape
    batch = batch[0] if batch else 1
    codes, scales = bytearray(len(values)), bytearray()
    for b in range(batch):
        for top in range(0, rows, height):
            for left in range(0, cols, width):
                places = [(b * rows + row) * cols + col for row in range(top, min(top + height, rows))
                          for col in range(left, min(left + width, cols))]
                amax = max(Fraction(max(abs(values[i]) for i in places)), floor)
                scale, code = rule(amax, LARGEST[dtype])
                scales += bytes([scale]) if scale_dtype == "U8" else struct.pack("<f", float(scale))
                cache = {}
                for i in places:
                    x = values[i]
                    negative = struct.pack(">f", x)[0] >= 0x80
                    if (x, negative) not in cache:
                        cache[x, negative] = e4m3(code(Fraction(x)), negative)
                    codes[i] = cache[x, negative]
    return bytes(codes), bytes(scales)
