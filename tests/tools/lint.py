#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The house rules that a script can check. Usage: lint.py [ROOT]. lint_test.py plants a fault for each of them."""
import pathlib
import re
import sys

import headers as house

CHECKS = []
MAX_MACROS = 16
HARD_CAP, SOFT_CAP, WIDTH = 600, 400, 120
BELOW_MODEL = {"string", "vector", "memory", "functional", "algorithm", "ranges", "iostream", "stdexcept", "iterator",
               "atomic", "random", "chrono", "cmath"}
STRING_ALLOWED = {"fp8wire/core/error.hpp"}
INTRINSICS = {"emmintrin.h", "immintrin.h", "arm_neon.h"}

# What no header may say, why, and a line that the rule must find.
CODE = [
    (r"(?<![\w.>:])([A-Za-z_][\w.\[\]]*) *[!=]= *\1(?![\w.\[(])",
     "a value compared with itself: test bits (core/bits.hpp)",
     "bool nan(float x) { return x != x; }"),
    (r"\b(?:__builtin_)?is(?:nan|inf|finite|normal)\b", "-ffast-math changes it: test bits (core/bits.hpp)",
     "bool nan(float x) { return std::isnan(x); }"),
    (r"\bstd::(?:fmax|fmin|nearbyint|rint|lrint)\b", "depends on NaN rules or on the rounding mode",
     "float top(float a, float b) { return std::fmax(a, b); }"),
    (r"\bstd::(?:min|max) *[(<]", "a min or max macro breaks it: write (std::min)(a, b)",
     "int low(int a, int b) { return std::min(a, b); }"),
    (r"\bstd::(?:cout|cerr|clog|printf|fprintf|puts|abort|exit|quick_exit|_Exit)\b",
     "a library neither prints nor exits",
     "void talk() { std::printf(text); }"),
    (r"\b(?:assert|DCHECK)\s*\(", "NDEBUG must not change the library: use core/expects.hpp",
     "void entry(int n) { assert(n > 0); }"),
    (r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b.*"
     r"\b(?:NDEBUG|_OPENMP|__has_include|__OPTIMIZE__|__CUDA_ARCH_LIST__)\b.*\n(?![ \t]*#[ \t]*error)",
     "two translation units with other flags would differ", "#ifdef _OPENMP\n#endif"),
    (r"\busing\s+namespace\b", "it reaches every includer", "using namespace std;"),
    (r"^[ \t]*namespace\s*\{", "an unnamed namespace in a header makes one copy per translation unit",
     "namespace {\n}"),
]
# What no file of the project may say, why, and an example.
WORDS = [
    (r"\b(?:TODO|FIXME|XXX)\b|\bnot implemented\b", "unfinished", "// TODO later"),
    (r"(?<![\w.])/(?:root|home|work|mnt|srv)/", "a path of one machine", "see /home/me/notes"),
    (r"\b(?:deb\.debian\.org|pypi\.org|files\.pythonhosted\.org)\b", "a host of a package registry",
     "fetch https://pypi.org/simple"),
]


def check(function):
    CHECKS.append(function)
    return function


def strip(text):
    """The code alone: comments and the insides of literals become spaces, lines stay where they are."""
    pattern = r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![\w])\'(?:\\.|[^\'\\\n])+\''

    def blank(match):
        return '""' + "\n" * match[0].count("\n") if match[0][0] in "\"R'" else "\n" * match[0].count("\n")
    return re.sub(pattern, blank, text, flags=re.DOTALL)


class Tree:
    """The project's text files, read once."""
    SUFFIXES = {".hpp", ".cuh", ".cpp", ".cu", ".py", ".sh", ".in", ".build", ".txt", ".md", ".ptx"}

    def __init__(self, root):
        self.root = root
        self.files = {}
        for path in sorted(root.rglob("*")):
            parts = path.relative_to(root).parts
            if any(p.startswith("build") or p in (".git", ".cache", "__pycache__", "subprojects") for p in parts):
                continue
            if path.is_file() and (path.suffix in self.SUFFIXES or parts == (".ci", "run")):
                self.files["/".join(parts)] = path.read_text(encoding="utf-8")
        self.headers = {h: self.files["include/" + h] for h in house.headers(root)}
        # Comments and literals out; includes keep their names, since <...> is no literal.
        self.code = {h: strip(text) for h, text in self.headers.items()}

    def lines(self, names):
        for name in names:
            for number, line in enumerate(self.files[name].split("\n"), 1):
                yield name, number, line

    def includes(self):
        for header, text in self.headers.items():
            for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', text, re.MULTILINE):
                yield header, text.count("\n", 0, match.start()) + 1, match[1], match[2]


def at(header, text, position, message):
    return "include/" + header, text.count("\n", 0, position) + 1, message


@check
def floors(tree):
    """A header includes its own floor or lower, and on floors 6 and 7 no neighbour."""
    for header in tree.headers:
        if house.floor(header) is None:
            yield "include/" + header, 1, "its folder stands on no floor (tests/tools/headers.py)"
        elif house.floor(header) == 0 and header not in ("fp8wire/config.hpp", "fp8wire/version.hpp"):
            yield "include/" + header, 1, "only config, version and the umbrella lie at the top"
    for header, line, _, target in tree.includes():
        if not target.startswith("fp8wire/"):
            continue
        own, other = house.floor(header), house.floor(target)
        if target not in tree.headers:
            yield "include/" + header, line, f"includes {target}, which does not exist"
        elif target == house.UMBRELLA:
            yield "include/" + header, line, "the library never includes the umbrella"
        elif own is None or other is None:
            continue
        elif other > own:
            yield "include/" + header, line, f"floor {own} includes {target} of floor {other}"
        elif own == other and own in (6, 7) and house.folder(header) != house.folder(target):
            yield "include/" + header, line, f"{house.folder(header)} and {house.folder(target)} are neighbours"


@check
def includes(tree):
    """Angle brackets; the standard library only, except in adapters; no expensive header below the model floor.

    What detail/ shares between the upper floors may be expensive; the lower ones do not include it then.
    """
    found = list(tree.includes())
    costly = {header for header, _, _, target in found if house.folder(header) == "detail" and target in BELOW_MODEL}
    while more := {h for h, _, _, target in found if house.folder(h) == "detail" and target in costly} - costly:
        costly |= more
    for header, line, bracket, target in found:
        place = "include/" + header, line
        if bracket == '"':
            yield *place, f"include {target} with angle brackets, from the include folder"
        own = house.floor(header)
        is_low = own is not None and own < house.FLOORS["model"] and house.folder(header) != "detail"
        if is_low and header not in STRING_ALLOWED and (target in BELOW_MODEL or target in costly):
            yield *place, f"<{target}> is too expensive below the model floor"
        third_party = "." in target or "/" in target
        allowed = house.folder(header) in house.ADAPTERS or (
            target in INTRINSICS and house.folder(header) in ("detail", "quant"))
        if third_party and not allowed and not target.startswith("fp8wire/"):
            yield *place, f"<{target}>: only io, transport, cuda and interop need more than the standard library"


@check
def macros(tree):
    """All macros live in config.hpp, and they are few."""
    for header, code in tree.code.items():
        guard = guard_of(header)
        for match in re.finditer(r"^[ \t]*#[ \t]*(define|undef)[ \t]+(\w+)", code, re.MULTILINE):
            if match[2] != guard and header != "fp8wire/config.hpp":
                yield at(header, code, match.start(), f"{match[1]} {match[2]}: macros live in config.hpp")
    config = tree.code.get("fp8wire/config.hpp", "")
    names = set(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", config, re.MULTILINE)) - {"FP8WIRE_CONFIG_HPP"}
    if len(names) > MAX_MACROS:
        yield "include/fp8wire/config.hpp", 1, f"{len(names)} macros, at most {MAX_MACROS}"
    for name in sorted(n for n in names if not n.startswith("FP8WIRE_")):
        yield "include/fp8wire/config.hpp", 1, f"macro {name} lacks the prefix FP8WIRE_"


def guard_of(header):
    return re.sub(r"\W", "_", header).upper()


@check
def guards(tree):
    """#ifndef FP8WIRE_<FOLDER>_<FILE>_HPP right under the introduction."""
    for header, code in tree.code.items():
        guard = guard_of(header)
        if not re.match(rf"\s*#ifndef {guard}\n#define {guard}\n", code) or not code.rstrip().endswith("#endif"):
            yield "include/" + header, 1, f"the include guard is {guard}, around everything"


@check
def namespaces(tree):
    """The namespace is opened by FP8WIRE_ABI_BEGIN only, so that every name carries the ABI tag."""
    for header, code in tree.code.items():
        if header == "fp8wire/config.hpp":
            continue
        for match in re.finditer(r"\bnamespace\s+fp8wire\b(?!\s*=)", code):
            yield at(header, code, match.start(), "open the namespace with FP8WIRE_ABI_BEGIN")
        if code.count("FP8WIRE_ABI_BEGIN") != code.count("FP8WIRE_ABI_END"):
            yield "include/" + header, 1, "FP8WIRE_ABI_BEGIN and FP8WIRE_ABI_END do not pair"


@check
def first_lines(tree):
    """Every source names its licence first; a header then says in one sentence what it is."""
    for name, text in tree.files.items():
        if name.endswith((".md", ".txt")) and not name.startswith("meson"):
            continue
        first = text.split("\n", 3)
        licence = first[1] if first[0].startswith("#!") and len(first) > 1 else first[0]
        if not re.fullmatch(r"(?://|#) SPDX-License-Identifier: [\w.-]+(?: (?:AND|OR|WITH) [\w.-]+)*", licence):
            yield name, 1, "the first line is the SPDX licence line"
        elif name.startswith("include/") and not re.fullmatch(r"/// .*\.", first[1]):
            yield name, 2, "the second line is one /// sentence with a full stop: what the header is"


@check
def docstrings(tree):
    """A /// block begins with a sentence that ends in a full stop."""
    for header, text in tree.headers.items():
        for match in re.finditer(r"(?:^[ \t]*///(?!<)[^\n]*\n)+", text, re.MULTILINE):
            words = " ".join(re.sub(r"^[ \t]*///", "", line).strip() for line in match[0].split("\n")).strip()
            if not re.search(r"[.:](?:[ )`\"]|$)", words):
                yield at(header, text, match.start(), "a docstring begins with a sentence and its full stop")


@check
def sizes(tree):
    """Headers stay short, lines fit, text is ASCII without tabs or trailing blanks."""
    for header, text in tree.headers.items():
        if text.count("\n") > HARD_CAP:
            yield "include/" + header, HARD_CAP, f"{text.count(chr(10))} lines, at most {HARD_CAP}"
    source = (".hpp", ".cuh", ".cpp", ".cu", ".py", ".sh")
    for name, number, line in tree.lines(n for n in tree.files if n.endswith(source)):
        if len(line) > WIDTH:
            yield name, number, f"{len(line)} columns, at most {WIDTH}"
        if name.startswith("include/") and not line.isascii():
            yield name, number, "not ASCII"
        if "\t" in line or line != line.rstrip():
            yield name, number, "a tab or blanks at the end"


@check
def code(tree):
    """The rows of CODE."""
    for header, text in tree.code.items():
        for pattern, why, _ in CODE:
            for match in re.finditer(pattern, text, re.MULTILINE):
                yield at(header, text, match.start(), f"{match[0].strip()}: {why}")


@check
def state(tree):
    """No variable of static storage: not global, not in a function, not per thread. Constants are constexpr."""
    for header, text in tree.code.items():
        for match in re.finditer(r"(?<![^;{}\n])[^;{}#\n]*?\b(static|thread_local|extern|inline)\b[^;{}=]*[;{=]", text):
            declared = match[0]
            stateless = r"\(|\boperator\b|\b(?:constexpr|consteval|namespace|template|class|struct)\b"
            if not re.search(stateless, declared):
                yield at(header, text, match.start(1), f"{' '.join(declared.split())} keeps state")


@check
def versions(tree):
    """FP8WIRE_VERSION is the one place; meson.build, the ABI namespace and the changelog follow it."""
    config = tree.headers["fp8wire/config.hpp"]
    number = int(re.search(r"#define FP8WIRE_VERSION (\d+)", config)[1])
    version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    for tag in re.findall(r"#define FP8WIRE_ABI (\w+)", config):
        if tag not in (f"v{number // 10000}_{number // 100 % 100}", f"v{number // 10000}_{number // 100 % 100}_nx"):
            yield "include/fp8wire/config.hpp", 1, f"ABI namespace {tag} does not belong to version {version}"
    for name, pattern in (("meson.build", r"version: '([^']*)'"), ("docs/changelog.md", r"^## (\S+)")):
        found = re.search(pattern, tree.files.get(name, ""), re.MULTILINE)
        if not found or found[1] != version:
            yield name, 1, f"says version {found[1] if found else 'nothing'}, config.hpp says {version}"


@check
def words(tree):
    """The rows of WORDS, in every file but the two that hold them."""
    names = [n for n in tree.files if n not in ("tests/tools/lint.py", "tests/tools/lint_test.py")]
    for name, number, line in tree.lines(names):
        for pattern, why, _ in WORDS:
            if match := re.search(pattern, line):
                yield name, number, f"{match[0]}: {why}"


@check
def links(tree):
    """A file that a text names exists, and so does the heading after '#'."""
    def anchors(text):
        return {re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")
                for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}

    sources = [n for n in tree.files if n.startswith(("include/", "docs/", "examples/")) or n == "README.md"]
    for name, number, line in tree.lines(sources):
        for target, anchor in re.findall(
                r"(?<![\w./<>-])((?:docs|spec|shared|tests|examples|bench)/[\w/-]+\.(?:md|cpp|hpp|py|sh|json|cu))"
                r"(?:#([\w-]+))?", line):
            if not (tree.root / target).is_file():
                yield name, number, f"{target} does not exist"
            elif anchor and anchor not in anchors(tree.files.get(target, "")):
                yield name, number, f"{target} has no heading #{anchor}"
        if name.endswith(".md"):
            for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", line):
                if not (tree.root / name).parent.joinpath(target).exists():
                    yield name, number, f"the link {target} leads nowhere"


def problems(root):
    """Every fault as (check, file, line, message)."""
    tree = Tree(root)
    return [(function.__name__, *fault) for function in CHECKS for fault in function(tree)]


def main():
    root = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else house.ROOT
    found = problems(root)
    for name, path, line, message in found:
        print(f"{path}:{line}: {message} [{name}]")
    for header in house.headers(root):
        lines = (root / "include" / header).read_text(encoding="utf-8").count("\n")
        if SOFT_CAP < lines <= HARD_CAP:
            print(f"note: include/{header} has {lines} lines; above {SOFT_CAP} a header usually holds two things")
    print(f"{len(CHECKS)} checks, {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
