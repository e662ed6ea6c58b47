#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The public headers under nvcc. Usage: nvcc_headers_test.py NVCC FLAG...

All of them compile in one device unit, without a flag that users would have to pass too; each .cuh compiles alone and
twice in a row. What a .cuh includes of CCCL (CUB, Thrust, libcu++) is nothing, but for the one header that says so.
"""
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import compiler
import headers as house

MAY_INCLUDE_CCCL = {"fp8wire/cuda/compact.cuh"}
# What adapters need that is not the toolkit's: a header without its library is left out.
LIBRARIES = ("rapidjson/", "boost/", "mpi.h", "omp.h")


def uses(root, header, seen=None):
    """All headers that a header includes, its own and other people's, however deep."""
    seen = set() if seen is None else seen
    text = (root / "include" / header).read_text(encoding="utf-8")
    for name in re.findall(r"^\s*#\s*include\s*<([^>]+)>", text, re.MULTILINE):
        if name not in seen:
            seen.add(name)
            if name.startswith("fp8wire/"):
                uses(root, name, seen)
    return seen


def lacking(command, root, header):
    """The first library header that is not here."""
    for name in sorted(uses(root, header)):
        if name.startswith(LIBRARIES) and compiler.check_syntax(["c++", "-std=c++20"], f"#include <{name}>\n"):
            return name
    return ""


def cccl(command, header):
    """Files of CCCL that a header drags in."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "unit.cu"
        path.write_text(f"#include <{header}>\n", encoding="utf-8")
        code, said = compiler.run([*command, "-M", str(path)])
    if code:
        return [said]
    return sorted(set(re.findall(r"\S*/(?:cub|thrust|cccl|cuda/std)/\S+", said)))


def problems(command, root):
    """(what is wrong, what was left out), each as lines of text."""
    wrong, left_out, together = [], [], []
    for header in house.headers(root):
        missing = lacking(command, root, header)
        if missing:
            left_out.append(f"{header}: needs {missing}")
        else:
            together.append(header)
    device = [h for h in together if h.endswith(".cuh")]
    if said := compiler.check_syntax(command, "".join(f"#include <{h}>\n" for h in together)):
        wrong.append(f"all headers in one unit: {said}")
    for header, said in zip(device, compiler.each(
            lambda h: compiler.check_syntax(command, f"#include <{h}>\n" * 2), device)):
        if said:
            wrong.append(f"{header} alone: {said}")
    for header in device:
        found = cccl(command, header)
        if found and header not in MAY_INCLUDE_CCCL:
            wrong.append(f"{header} includes {len(found)} files of CCCL: {found[0]}")
        if not found and header in MAY_INCLUDE_CCCL:
            wrong.append(f"{header} includes nothing of CCCL: the check sees nothing, or the exception is not needed")
    return wrong, left_out


def main():
    wrong, left_out = problems(sys.argv[1:], house.ROOT)
    for text in left_out:
        print(f"left out: {text}")
    for text in wrong:
        print(f"{text[:4000]}\n")
    print(f"{len(house.headers())} headers with nvcc: {len(wrong)} faults, {len(left_out)} left out")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
