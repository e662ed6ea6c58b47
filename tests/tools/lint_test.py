#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each rule of lint.py finds a fault planted for it, and finds nothing in a clean tree."""
import pathlib
import sys
import tempfile

import lint

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


def header(name, body):
    guard = lint.guard_of("fp8wire/" + name)
    return f"{SPDX}/// A header for this test.\n#ifndef {guard}\n#define {guard}\n{body}\n#endif\n"


def in_namespace(body):
    return f"#include <fp8wire/config.hpp>\nFP8WIRE_ABI_BEGIN\n{body}\nFP8WIRE_ABI_END"


# Code that looks like a fault and is none.
CLEAN = r"""
/// Tests bits. A comment may say x != x, std::isnan or static int count = 0.
static_assert(1 == 1);
inline constexpr int limit = 448;
inline constexpr const char* text = "x != x; // static int n = 0;";
template <class Value> constexpr bool is_nan_bits(Value bits) noexcept { return (bits & 1) == 1; }
inline bool same(int x, int x2) { return x != x2; }
inline bool named(const thing& a, const char* name) { return a.name == name; }
inline int low(int a, int b) { return (std::min)(a, b); }
struct plain {
  static constexpr int table[] = {1, 2};
  static int make(int from) noexcept;
  static inline constexpr char mark = '"';
  inline plain& operator=(const plain&) = default;
};
inline int lookup(int i) {
  static constexpr int squares[] = {0, 1, 4};
  return squares[i];
}
"""
TREE = {
    "include/fp8wire/config.hpp": header(
        "config.hpp",
        "#define FP8WIRE_VERSION 203\n#define FP8WIRE_ABI v0_2\n#define FP8WIRE_ABI_BEGIN namespace fp8wire {"),
    "include/fp8wire/core/plain.hpp": header("core/plain.hpp", "#include <cstdint>\n" + in_namespace(CLEAN)),
    "include/fp8wire/core/error.hpp": header("core/error.hpp", "#include <string>\n" + in_namespace("")),
    "include/fp8wire/quant/simd.hpp": header(
        "quant/simd.hpp", "#include <immintrin.h>\n#include <fp8wire/core/plain.hpp>\n" + in_namespace("")),
    "include/fp8wire/io/file.hpp": header(
        "io/file.hpp", "#ifndef _OPENMP\n#error why\n#endif\n#include <rapidjson/reader.h>\n" + in_namespace("")),
    "include/fp8wire/detail/list.hpp": header("detail/list.hpp", "#include <vector>\n" + in_namespace("")),
    "include/fp8wire/detail/more.hpp": header(
        "detail/more.hpp", "#include <fp8wire/detail/list.hpp>\n" + in_namespace("")),
    "include/fp8wire/wire/plan.hpp": header(
        "wire/plan.hpp", "#include <fp8wire/detail/more.hpp>\n" + in_namespace("")),
    "include/fp8wire/fp8wire.hpp": header("fp8wire.hpp", "#include <fp8wire/quant/simd.hpp>"),
    "meson.build": "# SPDX-License-Identifier: Apache-2.0\nproject('fp8wire', version: '0.2.3')\n",
    "docs/changelog.md": "# Changes\n\n## 0.2.3\n\nSee docs/changelog.md#changes and [this](changelog.md).\n",
}


def new_header(folder, body):
    """One more header, named so that no check minds its name."""
    return lambda tree: tree.update({f"include/fp8wire/{folder}/new.hpp": header(f"{folder}/new.hpp", body)})


def edit(name, old, new):
    def apply(tree):
        assert old in tree[name], old
        tree[name] = tree[name].replace(old, new, 1)
    return apply


PLAIN = "include/fp8wire/core/plain.hpp"
FAULTS = [
    ("floors", new_header("core", "#include <fp8wire/quant/simd.hpp>")),
    ("floors", new_header("transport", "#include <fp8wire/io/file.hpp>")),
    ("floors", new_header("quant", "#include <fp8wire/fp8wire.hpp>")),
    ("floors", new_header("quant", "#include <fp8wire/core/gone.hpp>")),
    ("floors", new_header("attic", "")),
    ("floors", lambda tree: tree.update({"include/fp8wire/new.hpp": header("new.hpp", "")})),
    ("includes", new_header("quant", "#include <vector>")),
    ("includes", new_header("core", "#include <cmath>")),
    ("includes", new_header("quant", "#include <fp8wire/detail/more.hpp>")),
    ("includes", new_header("wire", "#include <rapidjson/reader.h>")),
    ("includes", new_header("core", "#include <immintrin.h>")),
    ("includes", new_header("core", '#include "plain.hpp"')),
    ("macros", new_header("core", "#define FP8WIRE_HELP 1")),
    ("macros", new_header("core", "#undef min")),
    ("macros", edit("include/fp8wire/config.hpp", "\n#endif",
                    "".join(f"\n#define FP8WIRE_M{i}" for i in range(lint.MAX_MACROS - 2)) + "\n#endif")),
    ("macros", edit("include/fp8wire/config.hpp", "#define FP8WIRE_ABI v", "#define HELP\n#define FP8WIRE_ABI v")),
    ("guards", edit(PLAIN, "#ifndef FP8WIRE_CORE_PLAIN_HPP", "#ifndef FP8WIRE_PLAIN_HPP")),
    ("guards", edit(PLAIN, "#endif\n", "#endif\nint outside();\n")),
    ("namespaces", new_header("core", "namespace fp8wire {\n}")),
    ("namespaces", new_header("core", "FP8WIRE_ABI_BEGIN")),
    ("first_lines", edit(PLAIN, SPDX, "")),
    ("first_lines", edit("meson.build", "# SPDX-License-Identifier: Apache-2.0\n", "")),
    ("first_lines", edit(PLAIN, "/// A header for this test.", "/// A header for this test")),
    ("docstrings", new_header("core", in_namespace("/// no sentence here\nint f();"))),
    ("sizes", new_header("core", "\n" * lint.HARD_CAP)),
    ("sizes", new_header("core", "// " + "x" * lint.WIDTH)),
    ("sizes", new_header("core", "// \u00b5")),
    ("sizes", new_header("core", "int f(); ")),
    ("sizes", new_header("core", "\tint f();")),
    ("state", new_header("core", in_namespace("inline int counter = 0;"))),
    ("state", new_header("core", in_namespace("extern int counter;"))),
    ("state", new_header("core", in_namespace("inline int next() {\n  static int n;\n  return ++n;\n}"))),
    ("state", new_header("core", in_namespace("inline int next() {\n  static const std::string n{};\n  return 1;\n}"))),
    ("state", new_header("core", in_namespace("inline int next() { thread_local int n = 0; return ++n; }"))),
    ("versions", edit("meson.build", "0.2.3", "0.2.4")),
    ("versions", edit("docs/changelog.md", "## 0.2.3", "## 0.2.2")),
    ("versions", edit("include/fp8wire/config.hpp", "v0_2", "v0_3")),
    ("links", edit("docs/changelog.md", "docs/changelog.md#changes", "docs/changelog.md#gone")),
    ("links", edit("docs/changelog.md", "docs/changelog.md#changes", "docs/gone.md")),
    ("links", edit("docs/changelog.md", "](changelog.md)", "](gone.md)")),
    ("links", new_header("core", "// docs/gone.md says why")),
]
FAULTS += [("code", new_header("core", in_namespace(sample))) for _, _, sample in lint.CODE]
FAULTS += [("words", new_header("core", "// " + sample)) for _, _, sample in lint.WORDS]


def found(tree):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in tree.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        return lint.problems(root)


def main():
    failed = [f"a clean tree is blamed: {fault}" for fault in found(TREE)]
    for number, (name, plant) in enumerate(FAULTS):
        tree = dict(TREE)
        plant(tree)
        if name not in {fault[0] for fault in found(tree)}:
            failed.append(f"{name} misses fault {number}")
    failed += [f"{function.__name__} has no planted fault" for function in lint.CHECKS
               if function.__name__ not in {name for name, _ in FAULTS}]
    print("\n".join(failed + [f"{len(FAULTS)} planted faults, {len(failed)} failures"]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
