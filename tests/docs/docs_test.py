#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every ```cpp block of README.md and docs/ compiles, and runs if it is a program. Usage: docs_test.py COMPILER FLAG...

A block is a whole translation unit, less `#include <fp8wire/fp8wire.hpp>`, which a block without any #include gets.
"""
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import compiler
import headers as house
import markdown


def fault(command, block):
    """Empty, or what went wrong with the block."""
    place, line, text = block
    if "#include" not in text:
        text = "#include <fp8wire/fp8wire.hpp>\n" + text
    text = f'#line {line} "{place}"\n' + text
    if "int main(" not in text:
        return compiler.check_syntax(command, text)
    with tempfile.TemporaryDirectory() as folder:
        program = folder + "/program"
        code, said = compiler.run([*command, "-x", "c++", "-", "-o", program], text)
        if code == 0:
            code, said = compiler.run([program], cwd=folder, timeout=60)
        return f"exit code {code}\n{said}" if code else ""


def all_blocks(root):
    documents = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    return [(document.relative_to(root).as_posix(), line, text) for document in documents if document.is_file()
            for _, line, text in markdown.blocks(document.read_text(encoding="utf-8"), "cpp")]


def main():
    command = sys.argv[1:]
    found = all_blocks(house.ROOT)
    faults = compiler.each(lambda block: fault(command, block), found)
    for (place, line, _), said in zip(found, faults):
        if said:
            print(f"{place}:{line}: {said}\n")
    print(f"{len(found)} blocks of code in the documentation, {sum(map(bool, faults))} faults")
    return 1 if any(faults) else 0


if __name__ == "__main__":
    sys.exit(main())
