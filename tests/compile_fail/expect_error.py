#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mistakes that must not compile, and what the compiler must say. Usage: expect_error.py COMPILER FLAG...

A case is a source file of this folder with a mistake in it; with -DFIXED it must compile, so that a typo is not taken
for the expected error. Its comments say what must be found in the message (regular expressions, on one line each):
  // EXPECT: text          from every compiler
  // EXPECT-gcc: text      from g++ only; likewise EXPECT-clang, EXPECT-nvcc
  // FLAGS: -std=c++17     more flags for the mistaken build
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import compiler


def fault(command, family, case):
    """Empty, or why the case is not as it must be."""
    text = case.read_text(encoding="utf-8")
    marks = re.findall(r"^// (EXPECT(?:-\w+)?|FLAGS): (.*)$", text, re.MULTILINE)
    flags = [flag for mark, value in marks if mark == "FLAGS" for flag in value.split()]
    expected = [value for mark, value in marks if mark in ("EXPECT", "EXPECT-" + family)]
    if not any(mark.startswith("EXPECT") for mark, _ in marks):
        return "has no EXPECT line"
    if said := compiler.check_syntax([*command, "-DFIXED"], text):
        return f"does not compile with -DFIXED:\n{said}"
    said = compiler.check_syntax([*command, *flags], text)
    if not said:
        return "compiles with the mistake in it"
    missing = [value for value in expected if not re.search(value, said)]
    return "".join(f"the message lacks '{value}'\n" for value in missing) + said if missing else ""


def main():
    command, cases = sys.argv[1:], sorted(pathlib.Path(__file__).parent.glob("*.cpp"))
    family = compiler.family(command)
    faults = compiler.each(lambda case: fault(command, family, case), cases)
    for case, said in zip(cases, faults):
        if said:
            print(f"{case.name}: {said}\n")
    print(f"{len(cases)} cases with {command[0]} ({family}), {sum(map(bool, faults))} faults")
    return 1 if any(faults) or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
