#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Headers on their own. Usage: headers_test.py COMPILER FLAG...

Each header compiles alone and twice in a row. All that need the standard library only also compile together under
macros that others define, and without exceptions and RTTI. What a header drags in is counted in lines, which do not
vary from run to run as seconds do.
"""
import functools
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import compiler
import headers as house

BUDGET = {0: 15_000, 1: 15_000, 2: 15_000, 3: 17_000, 4: 28_000, 5: 28_000, 8: 30_000}
# The quantizer together with all that moves data into layouts, and the sender, which has both and the wire.
BUDGET_OF = {"fp8wire/core/error.hpp": 28_000, "fp8wire/quant/quantize_into.hpp": 18_200,
             "fp8wire/wire/sender.hpp": 28_950}
# Vector intrinsics come as one header of the compiler's, 40 thousand lines of g++ 12 whatever is used of it. Host
# kernels cannot do without; it is left out of the count, so that budgets still tell what else a header drags in.
INTRINSICS = [("_mm256_add_epi32", "immintrin.h"), ("_mm_add_epi32", "emmintrin.h")]
# What <complex.h>, <termios.h>, <sys/sysmacros.h>, windows.h, math headers and users' own code are known to define.
HOSTILE = [*"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "B0", "B1", "F0", "M1", "N1", "EPS", "small", "near", "far", "hyper",
           "interface", "min(a, b)", "max(a, b)", "major(a)", "minor(a)", "makedev(a, b)", "IN", "OUT", "ERROR",
           "DEBUG", "TRUE", "FALSE", "PI", "OVERFLOW", "UNDERFLOW", "DOMAIN", "CHECK", "REQUIRE", "unix", "linux"]


def alone(command, root, header):
    """Empty, 'needs ...' or what is wrong."""
    text = (root / "include" / header).read_text(encoding="utf-8")
    openmp = ["-fopenmp"] if "omp.h" in text or "pragma omp" in text else []
    said = compiler.check_syntax([*command, *openmp], f"#include <{header}>\n" * 2)
    lacking = re.search(r"fatal error: '?([^\s':]+)'?(?:: No such file| file not found)", said)
    if lacking and house.folder(header) in house.ADAPTERS and not lacking[1].startswith("fp8wire/"):
        return f"needs {lacking[1]}"
    return said


def hostile_unit(root):
    """Everything at once, under macros; first the standard headers, which nobody may include under macros."""
    free = house.dependency_free(root)
    texts = [(root / "include" / header).read_text(encoding="utf-8") for header in free]
    standard = set(re.findall(r"^\s*#\s*include\s*<([a-z_]+|\w+intrin\.h)>", "\n".join(texts), re.MULTILINE))
    lines = [f"#include <{name}>" for name in sorted(standard)]
    for macro in HOSTILE:
        lines += [f"#undef {macro.split('(')[0]}", f"#define {macro} ] a macro of somebody else ["]
    return "\n".join(lines + [f"#include <{h}>" for h in free]) + "\n"


def preprocessed(command, header):
    _, text = compiler.run([*command, "-E", "-P", "-x", "c++", "-"], f"#include <{header}>\n")
    return text, sum(1 for line in text.split("\n") if line.strip())


@functools.cache
def intrinsic_lines(command, header):
    return preprocessed(command, header)[1]


def lines_of(command, header):
    text, lines = preprocessed(command, header)
    for name, intrinsics in INTRINSICS:
        if name in text:
            return lines - intrinsic_lines(command, intrinsics)
    return lines


def over_budget(command, header):
    """detail/ is private: what it costs shows in the headers that use it."""
    budget = BUDGET_OF.get(header, BUDGET.get(house.floor(header)))
    if budget is None or house.folder(header) == "detail":
        return ""
    lines = lines_of(command, header)
    return f"{lines} lines after -E -P, at most {budget}" if lines > budget else ""


def problems(command, root):
    """(what is wrong, what was left out), each as lines of text."""
    all_headers = house.headers(root)
    device = [h for h in all_headers if h.endswith(".cuh")]
    host = [h for h in all_headers if h not in device]
    wrong, skipped = [], [f"{h}: needs a CUDA compiler" for h in device]
    for header, said in zip(host, compiler.each(lambda h: alone(command, root, h), host)):
        if said.startswith("needs "):
            skipped.append(f"{header}: {said}")
        elif said:
            wrong.append(f"{header} alone: {said}")
    together = "".join(f"#include <{h}>\n" for h in house.dependency_free(root))
    for name, extra, text in (("under hostile macros", [], hostile_unit(root)),
                              ("without exceptions and RTTI", ["-fno-exceptions", "-fno-rtti"], together)):
        if said := compiler.check_syntax([*command, *extra], text):
            wrong.append(f"all headers {name}: {said}")
    for header, said in zip(host, compiler.each(lambda h: over_budget(tuple(command), h), host)):
        if said:
            wrong.append(f"{header}: {said}")
    return wrong, skipped


def main():
    command = sys.argv[1:]
    wrong, skipped = problems(command, house.ROOT)
    for text in skipped:
        print(f"left out: {text}")
    for text in wrong:
        print(f"{text}\n")
    print(f"{len(house.headers())} headers with {command[0]}: {len(wrong)} faults, {len(skipped)} left out")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
