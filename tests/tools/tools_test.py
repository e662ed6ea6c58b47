#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The checkers of headers, compile errors and documentation notice faults. Usage: tools_test.py COMPILER FLAG..."""
import pathlib
import sys
import tempfile

import headers as house

for folder in ("headers", "compile_fail", "docs"):
    sys.path.insert(0, str(house.ROOT / "tests" / folder))
import compiler
import docs_test
import expect_error
import headers_test
import markdown

GUARDED = "#ifndef GUARD_{0}\n#define GUARD_{0}\n{1}\n#endif\n"
# What a header may not be, and a word of the complaint.
BAD_HEADERS = {
    "core/unguarded.hpp": ("struct twice {};\n", "redefinition"),
    "core/needs.hpp": (GUARDED.format("needs", "inline std::size_t size() { return 0; }"), "std"),
    "core/shadows.hpp": (GUARDED.format("shadows", "inline int f(int a) { { int a = 1; return a; } }"), "shadow"),
    "core/letter.hpp": (GUARDED.format("letter", "template <class I> struct box {};"), "hostile"),
    "core/throws.hpp": (GUARDED.format("throws", "inline void f() { throw 1; }"), "without exceptions"),
    "core/heavy.hpp": (GUARDED.format("heavy", "#include <ranges>"), "lines after"),
    "core/absent.hpp": (GUARDED.format("absent", "#include <nowhere/nothing.h>"), "nowhere"),
}
GOOD_HEADERS = {
    "core/good.hpp": GUARDED.format("good", "#include <cstdint>\nstruct good {};"),
    "io/adapter.hpp": GUARDED.format("adapter", "#include <nowhere/nothing.h>"),
}
CASES = {
    "good": ("// EXPECT: static.assert\n#ifndef FIXED\nstatic_assert(1 == 2);\n#endif\n", ""),
    "no mistake": ("// EXPECT: anything\nint x;\n", "compiles with the mistake"),
    "a typo": ("// EXPECT: assert\nstatic_asert(1 == 2);\n", "does not compile with -DFIXED"),
    "another message": ("// EXPECT: shoes\n#ifndef FIXED\nstatic_assert(1 == 2);\n#endif\n", "lacks 'shoes'"),
    "nothing expected": ("#ifndef FIXED\nstatic_assert(1 == 2);\n#endif\n", "no EXPECT"),
    "flags": ("// FLAGS: -DMISTAKE\n// EXPECT: assert\n#ifdef MISTAKE\nstatic_assert(1 == 2);\n#endif\n", ""),
}
BLOCKS = [
    ("#include <cstdint>\nstd::uint8_t code;\n", False),
    ("#include <cstdint>\nstd::uint8_t code\n", True),
    ("#include <cstdlib>\nint main() { return 0; }\n", False),
    ("#include <cstdlib>\nint main() { return 3; }\n", True),
]


def header_faults(command):
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)

        def write(header, text):
            path = root / "include/fp8wire" / header
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return path

        command = [*command, f"-I{root}/include"]
        for header, text in GOOD_HEADERS.items():
            write(header, text)
        wrong, skipped = headers_test.problems(command, root)
        if wrong or len(skipped) != 1:
            yield f"good headers are blamed: {wrong} {skipped}"
        for header, (text, word) in BAD_HEADERS.items():
            path = write(header, text)
            if word not in "".join(headers_test.problems(command, root)[0]):
                yield f"headers_test misses {header}"
            path.unlink()


def case_faults(command):
    with tempfile.TemporaryDirectory() as name:
        case = pathlib.Path(name) / "case.cpp"
        for title, (text, word) in CASES.items():
            case.write_text(text, encoding="utf-8")
            said = expect_error.fault(command, compiler.family(command), case)
            if (word not in said) if word else said:
                yield f"expect_error, {title}: '{said}'"


def document_faults(command):
    for text, wrong in BLOCKS:
        if bool(docs_test.fault(command, ("a.md", 1, text))) != wrong:
            yield f"docs_test is wrong about: {text}"
    text = "# One\n```cpp\nint a;\n```\nwords\n## Two\n```sh\nls\n```\n```cpp\nint b;\nint c;\n```\n"
    if markdown.blocks(text, "cpp") != [("One", 3, "int a;\n"), ("Two", 11, "int b;\nint c;\n")]:
        yield "markdown.blocks reads wrongly"


def main():
    command = sys.argv[1:]
    found = [*header_faults(command), *case_faults(command), *document_faults(command)]
    print("\n".join([*found, f"{len(BAD_HEADERS) + len(CASES) + len(BLOCKS) + 2} trials, {len(found)} failures"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
