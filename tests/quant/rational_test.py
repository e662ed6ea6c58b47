#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every preset against exact rational arithmetic. Usage: rational_test.py QUANTIZE_FILE

Floats are Fractions here and every rounding is spelled out, so that neither a compiler nor a processor can be wrong
about
them. Blocks are rows of eight weights: edge cases, and random ones of every magnitude.
"""

import os
import random
import re
import struct
import subprocess
import sys
from fractions import Fraction

INF = "inf"


def two_to(k):
    return Fraction(1 << k) if k >= 0 else Fraction(1, 1 << -k)


def log2_down(x):
    k = x.numerator.bit_length() - x.denominator.bit_length()
    return k if two_to(k) <= x else k - 1


def log2_up(x):
    k = log2_down(x)
    return k if two_to(k) == x else k + 1


def rounded(x, bits=24, lowest=-149):
    """x >= 0 to the nearest float of so many significant bits, ties to even; INF beyond FP32."""
    if x == 0 or x == INF:
        return x
    unit = two_to(max(log2_down(x) - bits + 1, lowest))
    count, rest = divmod(x, unit)
    if rest * 2 > unit or (rest * 2 == unit and count % 2):
        count += 1
    return count * unit if count * unit < two_to(128) else INF


def times(a, b):
    if INF in (a, b):
        return "nan" if 0 in (a, b) else INF
    return rounded(a * b)


def over(a, b):
    if b == INF:
        return Fraction(0)
    return INF if b == 0 else rounded(a / b)


def subnormal(x):
    return x != INF and 0 < x < two_to(-126)


class Format:
    def __init__(self, exponent_bits, mantissa_bits, bias, largest):
        self.mantissa_bits, self.largest = mantissa_bits, largest
        one = 1 << mantissa_bits

        def value(code):
            field, mantissa = code >> mantissa_bits, code & (one - 1)
            return (
                Fraction(mantissa, one) * two_to(1 - bias)
                if field == 0
                else (1 + Fraction(mantissa, one)) * two_to(field - bias)
            )

        self.values = [value(code) for code in range(largest + 2)]
        self.max = self.values[largest]

    def code(self, x, ties_away):
        if x == INF:
            return self.largest
        low, high = 0, self.largest + 1
        while low < high:
            middle = (low + high + 1) // 2
            tie = (self.values[middle - 1] + self.values[middle]) / 2
            if x > tie or (x == tie and (middle % 2 == 0 or ties_away)):
                low = middle
            else:
                high = middle - 1
        return min(low, self.largest)


E4M3, E5M2 = Format(4, 3, 7, 0x7E), Format(5, 2, 15, 0x7B)


def rule(name, scale, form, amax, input_max):
    """The number that is stored, the multiplier, the divisor (one of them is 1)."""
    one, top, rcp = Fraction(1), form.max, rounded(1 / form.max)
    p = log2_down(top)
    power = lambda k: (two_to(k), two_to(-k), one)
    up = lambda x: -127 if x == 0 else max(-127, min(127, log2_up(x)))
    if name.startswith(("te-block", "te-sharded")):
        sharded = name.startswith("te-sharded")
        m = one
        if amax and not (sharded and subnormal(amax)):
            m = over(top, amax)
            m = (rounded(two_to(128) - two_to(104)) if sharded else input_max) if m == INF else m
            m = two_to(log2_down(m)) if scale == "pow2" else m
        s = over(one, m)
        return (Fraction(0) if sharded and subnormal(s) else s), m, one
    if name.startswith("te-mxfp8") or name == "flashinfer-mxfp8":
        s = times(amax, rcp)
        flushed = name in ("te-mxfp8-sharded", "flashinfer-mxfp8") and subnormal(s)
        s = Fraction(0) if flushed else s
        stored, m, one = power(up(s))
        return stored, (Fraction(0) if name == "flashinfer-mxfp8" and s == 0 else m), one
    if name == "vllm-block" and scale == "pow2":
        s = two_to(log2_up(max(over(amax, top), rounded(Fraction("1e-10")))))
        return s, one, s
    if name.startswith("skyrl-block") and scale == "pow2":
        s = two_to(log2_up(over(amax, top)))
        return s, one, s
    if name.startswith("deepgemm-block") and scale != "fp32":
        return power(max(-126, min(127, log2_up(over(amax, top)))))
    if name in ("vllm-block", "skyrl-block-cpu", "deepgemm-block-cpu") or (
        name == "compressed-tensors-block" and scale == "fp32"
    ):
        s = over(amax, top) or (two_to(-23) if name.startswith("compressed") else one)
        return (s, over(one, s), one) if name == "deepgemm-block-cpu" else (s, one, s)
    if name == "compressed-tensors-block":
        s = rounded(over(amax, top), 8, -133) or two_to(-7)
        return s, one, s
    if name in ("skyrl-block", "deepgemm-block", "triton-block", "sgl-kernel-block", "sglang-approx-block"):
        s = times(amax, rcp)
        if name == "skyrl-block":
            return s, one, s
        m = {"sgl-kernel-block": over(top, amax), "sglang-approx-block": times(top, over(one, amax))}.get(
            name, over(one, s)
        )
        return s, m, one
    if name == "nemo-block" and scale == "fp32":
        m = times(top, over(one, amax)) if amax else one
        return over(one, m), m, one
    if name == "nemo-block":
        k = up(over(amax, top))
        return (one, one, one) if k == -127 else power(k)
    if name == "torchao-block":
        m = rounded(top / amax)
        return over(one, m), m, one
    if name in ("skyrl-mxfp8", "vllm-mxfp8", "torchao-mxfp8-rceil"):
        stored, m, _ = power(up(over(amax, top)))
        return stored, (one if name.endswith("rceil") and stored == two_to(-127) else m), one
    if name in ("vllm-mxfp8-fallback", "nemo-mxfp8"):
        return power(max(-126, log2_down(amax)) if amax else -126)
    unit = two_to(max(log2_down(amax), -126)) if amax else 0
    if name.endswith("-even"):
        amax += unit * two_to(-form.mantissa_bits - 1) - (unit * two_to(-23) if name.startswith("fbgemm") else 0)
    if name.startswith("compressed"):
        amax += unit / 4
    k = -127 if amax < two_to(-126) else log2_down(amax)
    if name.endswith("-ceil") and amax and (k == -127 or amax != two_to(k)):
        k += 1
    k = max(-127, k - p)
    return two_to(k), (two_to(126) if name.startswith("torchao") and k == -127 else two_to(-k)), one


def fp32(bits):
    field, mantissa = bits >> 23 & 255, bits & 0x7FFFFF
    return Fraction(mantissa) * two_to(-149) if field == 0 else Fraction(mantissa | 1 << 23) * two_to(field - 150)


def to_bits(x):
    if x == INF:
        return 0x7F800000
    if x < two_to(-126):
        return int(x / two_to(-149))
    k = log2_down(x)
    return (k + 126 << 23) + int(x / two_to(k - 23))


def blocks(count, bf16):
    edges = [
        0,
        1,
        0x400000,
        0x400001,
        0x7FFFFF,
        0x800000,
        0x3E00000,
        0x3E00001,
        0x4600000,
        0x4600001,
        0x4DFFFFF,
        0x4E00000,
        0x2B8CBCCC,
        0x2EDBE6FF,
        0x38D1B717,
        0x3F9A0000,
        0x3FA80000,
        0x3FC40000,
        0x3FCC0000,
        0x3F8A0000,
        0x3FE00000,
        0x3FE00001,
        0x43E00000,
        0x43E80001,
        0x7F600000,
        0x7F780000,
        0x7F7F0000,
        0x7F7FFFFF,
    ]
    made = []
    for i in range(count):
        amax = (
            edges[i]
            if i < len(edges)
            else random.getrandbits(23) | random.choice((random.randrange(255), random.randrange(100, 140))) << 23
        )
        row = [amax | random.getrandbits(1) << 31]
        for _ in range(7):
            field = max(0, (amax >> 23) - random.randrange(16))
            magnitude = min(amax, field << 23 | random.getrandbits(23))
            row.append(magnitude | random.getrandbits(1) << 31)
        made += [bits & 0xFFFF0000 for bits in row] if bf16 else row
    return made


def check(program, preset, bf16, count=150):
    name, scale, element, block, stored, floor = preset[:6]
    data = blocks(count, bf16)
    raw = struct.pack("<%dH" % len(data), *[b >> 16 for b in data]) if bf16 else struct.pack("<%dI" % len(data), *data)
    form = E5M2 if element.startswith("e5m2") else E4M3
    height, width = map(int, block.split("x"))
    # Blocks end where a matrix ends: quantize row by row where a block is wider than eight, column by column for 32x1.
    wrong = []
    nan = 0xFE if "nan=-max" in element else 0x7E if "nan=signed_max" in element else 0x7F
    step = 2 if bf16 else 4
    for i in range(count):
        part = raw[i * 8 * step : (i + 1) * 8 * step]
        shape = ("8", "1") if width == 1 else ("1", "8")
        out = subprocess.run(
            [program, name, scale, element, block, "bf16" if bf16 else "f32", *shape],
            input=part,
            capture_output=True,
            check=True,
        ).stdout
        weights = data[i * 8 : (i + 1) * 8]
        amax = max([fp32(b & 0x7FFFFFFF) for b in weights] + [fp32(int(floor, 16))])
        if name == "nemo-block":
            amax = max(amax, fp32(weights[-1] & 0x7FFFFFFF))
        s, m, d = rule(name, scale, form, amax, fp32(0x7F7F0000 if bf16 else 0x7F7FFFFF))
        expected = []
        for bits in weights:
            x, sign = fp32(bits & 0x7FFFFFFF), bits >> 24 & 0x80
            if name == "flashinfer-mxfp8" and subnormal(x):
                x = Fraction(0)
            if name == "te-mxfp8-fma" and x == 0:
                sign = 0
            y = over(x, d) if d != 1 else times(x, m)
            if name == "compressed-tensors-block" and scale == "bf16":
                y = rounded(y, 8, -133)
            expected.append(nan if y == "nan" else form.code(y, "ties=away" in element) | sign)
        scale_bytes = {
            "F32": lambda: struct.pack("<I", to_bits(s)),
            "BF16": lambda: struct.pack("<H", to_bits(s) >> 16),
            "F8_E8M0": lambda: bytes([log2_down(s) + 127]),
        }[stored]()
        if out != bytes(expected) + scale_bytes:
            wrong.append(
                "%s %s %s: %s gave %s, exactly %s"
                % (
                    name,
                    scale,
                    "bf16" if bf16 else "f32",
                    ["%08X" % b for b in weights],
                    out.hex(),
                    (bytes(expected) + scale_bytes).hex(),
                )
            )
    return wrong


def main():
    program, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 60
    random.seed(20)
    presets = [
        line.split("\t")
        for line in subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
    ]
    wrong = [fault for preset in presets for bf16 in (False, True) for fault in check(program, preset, bf16, count)]
    page = open(os.path.join(os.path.dirname(__file__), "..", "..", "docs", "numerics.md"), encoding="utf-8").read()
    for name, scale, element, block, _, _, grid, _ in presets:
        row = r"^\| `%s`[^|]*\| %s \| %s \| %s \|.*\| %s \|" % tuple(
            map(re.escape, (name, scale, element, block, grid))
        )
        if not re.search(row, page, re.MULTILINE):
            wrong.append(
                "docs/numerics.md has no row for %s %s %s %s with grid id %s" % (name, scale, element, block, grid)
            )
    print("\n".join(wrong[:20]))
    print("%d presets, %d blocks each, %d wrong" % (len(presets), 2 * count, len(wrong)))
    return 1 if wrong or len(presets) < 40 else 0


if __name__ == "__main__":
    sys.exit(main())
