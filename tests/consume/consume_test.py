#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A user's project in each way that docs/vendoring.md shows, by the very lines it shows. Usage: consume_test.py WAY

Ways: copy, subproject, pkg_config, find_package, fetch_content. Exit code 77 (skipped) where a tool is absent.
"""
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import compiler
import headers as house
import markdown

ROOT = house.ROOT
SKIPPED = 77
CMAKE_HEAD = "cmake_minimum_required(VERSION 3.14)\nproject(consumer CXX)\nadd_executable(app main.cpp)\n"
MESON_HEAD = "project('consumer', 'cpp', default_options: ['cpp_std=c++20', 'werror=true', 'warning_level=3'])\n"


class Failure(Exception):
    pass


def must(command, **options):
    code, said = compiler.run(command, **options)
    if code:
        raise Failure(f"{' '.join(map(str, command))}: exit code {code}\n{said}")
    return said


def snippet(heading, language):
    """The one block of that language under that heading of docs/vendoring.md."""
    text = (ROOT / "docs/vendoring.md").read_text(encoding="utf-8")
    found = [code for title, _, code in markdown.blocks(text, language) if title == heading]
    if len(found) != 1:
        raise Failure(f"docs/vendoring.md has {len(found)} {language} blocks under '{heading}', not 1")
    return found[0]


def need(tool):
    if not shutil.which(tool):
        print(f"skipped: {tool} is not installed")
        sys.exit(SKIPPED)


def install(work):
    """The library as a package under work/prefix."""
    must(["meson", "setup", work / "library", ROOT, f"--prefix={work / 'prefix'}", "-Dauto_features=disabled"])
    must(["meson", "install", "-C", work / "library"])
    installed = work / "prefix/include"
    missing = [h for h in [*house.headers(), "fp8wire/LICENSE"] if not (installed / h).is_file()]
    if missing:
        raise Failure(f"not installed: {missing}")
    return {"PKG_CONFIG_PATH": str(work / "prefix/share/pkgconfig"), "CMAKE_PREFIX_PATH": str(work / "prefix")}


def cmake(work, lines, expect_success=True, **options):
    (work / "CMakeLists.txt").write_text(CMAKE_HEAD + lines, encoding="utf-8")
    shutil.rmtree(work / "build", ignore_errors=True)
    configure = ["cmake", "-S", work, "-B", work / "build", *options.pop("defines", [])]
    if not expect_success:
        if compiler.run(configure, **options)[0] == 0:
            raise Failure(f"CMake accepted: {lines}")
        return None
    must(configure, **options)
    must(["cmake", "--build", work / "build"], **options)
    return work / "build/app"


def copy(work):
    (work / "fp8wire").symlink_to(ROOT)
    must(["sh", "-ec", snippet("Copy the folder", "sh")], cwd=work)
    (work / "fp8wire").unlink()
    if not (work / "third_party/fp8wire/LICENSE").is_file():
        raise Failure("the copied folder has no licence")
    return work / "app"


def subproject(work):
    (work / "meson.build").write_text(MESON_HEAD + snippet("Meson subproject", "meson"), encoding="utf-8")
    (work / "subprojects").mkdir()
    (work / "subprojects/fp8wire").symlink_to(ROOT)
    must(["meson", "setup", work / "build", work])
    must(["meson", "compile", "-C", work / "build"])
    return work / "build/app"


def pkg_config(work):
    need("pkg-config")
    environment = install(work)
    must(["sh", "-ec", snippet("pkg-config", "sh")], cwd=work, env=environment)
    version = must(["pkg-config", "--modversion", "fp8wire"], env=environment).strip()
    if not must([work / "app"]).startswith(version + ":"):
        raise Failure(f"pkg-config says version {version}, the headers another")
    return work / "app"


def find_package(work):
    need("cmake")
    environment = install(work)
    lines = snippet("CMake package", "cmake")
    for version in ("9.9", "0.0"):
        cmake(work, f"find_package(fp8wire {version} REQUIRED)\n", expect_success=False, env=environment)
    return cmake(work, lines, env=environment)


def fetch_content(work):
    need("cmake")
    return cmake(work, snippet("CMake FetchContent", "cmake"), defines=[f"-DFETCHCONTENT_SOURCE_DIR_FP8WIRE={ROOT}"])


WAYS = {way.__name__: way for way in (copy, subproject, pkg_config, find_package, fetch_content)}


def main():
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        shutil.copy(pathlib.Path(__file__).with_name("main.cpp"), work)
        try:
            print(must([WAYS[sys.argv[1]](work)]), end="")
        except Failure as failure:
            print(failure)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
