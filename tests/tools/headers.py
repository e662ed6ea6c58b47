#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What files there are, and the floor each header stands on: the one list that the build and the tests share."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLOORS = {
    "core": 1, "detail": 1, "format": 2, "layout": 2, "quant": 3, "model": 4, "wire": 5,
    "io": 6, "transport": 6, "cuda": 6, "interop": 7, "testing": 7,
}
# Folders whose headers adapt somebody else's: they may need a library that is not there.
ADAPTERS = {"io", "transport", "cuda", "interop"}
UMBRELLA = "fp8wire/fp8wire.hpp"


def headers(root=ROOT):
    """Every header as users spell it ("fp8wire/core/bits.hpp"), sorted."""
    include = root / "include"
    found = [p for p in (include / "fp8wire").rglob("*") if p.suffix in (".hpp", ".cuh") and p.is_file()]
    return sorted(p.relative_to(include).as_posix() for p in found)


def folder(header):
    """"core" of "fp8wire/core/bits.hpp"; empty for the headers at the top."""
    parts = header.split("/")
    return parts[1] if len(parts) > 2 else ""


def floor(header):
    """The floor's number, None for a folder that no floor has. The umbrella stands above all others."""
    if header == UMBRELLA:
        return 8
    return FLOORS.get(folder(header)) if folder(header) else 0


def dependency_free(root=ROOT):
    """The headers that need the standard library only."""
    return [h for h in headers(root) if h.endswith(".hpp") and folder(h) not in ADAPTERS]


def test_sources(root=ROOT):
    """tests/<floor>/*_test.cpp, relative to tests/."""
    tests = root / "tests"
    found = [p for p in tests.glob("*/*_test.cpp") if p.parent.name in FLOORS]
    return sorted(p.relative_to(tests).as_posix() for p in found)


def sources(folder):
    """*.cpp right in that folder of the project, by name."""
    return sorted(p.name for p in (ROOT / folder).glob("*.cpp"))


if __name__ == "__main__":
    if sys.argv[1:] == ["--tests"]:
        print("\n".join(test_sources()))
    elif sys.argv[1:2] == ["--sources"]:
        print("\n".join(sources(sys.argv[2])))
    elif sys.argv[1:] == ["--include-all"]:
        print("\n".join(f"#include <{h}>" for h in dependency_free()))
    else:
        print("\n".join(headers()))
