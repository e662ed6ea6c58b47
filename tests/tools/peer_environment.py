# SPDX-License-Identifier: Apache-2.0
"""A virtual environment with torch and the packages built on it, for tests that ask them instead of a reference.

The torch that PyPI has for Linux wants two gigabytes of CUDA libraries before it can be imported. Only its CPU side is
asked here, so that stand-ins take their place: every function of theirs answers "no device".
"""

import collections
import fcntl
import os
import pathlib
import subprocess
import sys

NO_DEVICE = 100  # cudaErrorNoDevice

PACKAGES = [
    "numpy",
    "ml_dtypes==0.6.0",
    "transformers==5.23.0",
    "safetensors==0.8.0",
    "psutil",
    "pydantic",
    "loguru",
    "sympy",
    "networkx",
    "jinja2",
    "fsspec",
    "setuptools",
]
ON_TORCH = ["torch==2.15.0", "torchao==0.18.0", "compressed-tensors==0.20.1", "accelerate==1.15.0"]


def stand_ins(torch_lib, folder):
    """Makes the CUDA libraries that torch's own need, by soname, into the folder."""
    needed, wanted, defined, versions = set(), set(), set(), collections.defaultdict(set)

    def read(option, path):
        return subprocess.run(["readelf", "-W", option, path], capture_output=True, text=True, check=True).stdout

    for library in sorted(torch_lib.glob("*.so")):
        for line in read("--dynamic", library).splitlines():
            if "(NEEDED)" in line:
                needed.add(line[line.index("[") + 1 : line.index("]")])
        soname = ""
        for line in read("--version-info", library).splitlines():
            words = line.split()
            if "File:" in words:
                soname = words[words.index("File:") + 1]
            elif soname and "Name:" in words and "Flags:" in words:
                versions[soname].add(words[words.index("Name:") + 1])
        for line in read("--dyn-syms", library).splitlines():
            words = line.split()
            if len(words) >= 8 and words[0].rstrip(":").isdigit():
                (wanted if words[6] == "UND" else defined).add(words[7])
    libraries = sorted(one for one in needed if one.startswith(("libcu", "libnccl", "libnvrtc", "libnvshmem")))
    home = {version: soname for soname in libraries for version in versions[soname]}
    functions = collections.defaultdict(set)
    for symbol in wanted - defined:
        name, _, version = symbol.partition("@")
        if version in home:
            functions[home[version]].add(name)
        elif not version and name.startswith(("cu", "nccl", "nvrtc", "nvshmem")):
            functions["libnccl.so.2"].add(name)  # without a version any library may have it
    folder.mkdir(exist_ok=True)
    source, script = folder / "source.c", folder / "versions"
    for soname in libraries:
        named = "".join(f"{one} {{ global: *; }};\n" for one in sorted(versions[soname]))
        source.write_text("".join(f"int {one}(void) {{ return {NO_DEVICE}; }}\n" for one in sorted(functions[soname])))
        script.write_text(named or "{ global: *; };")
        subprocess.run(
            [
                "gcc",
                "-w",
                "-fno-builtin",
                "-shared",
                "-fPIC",
                f"-Wl,-soname,{soname}",
                f"-Wl,--version-script={script}",
                "-o",
                folder / soname,
                source,
            ],
            check=True,
        )


def with_torch(folder):
    """As enter, with everything that the tests ask; they share one folder, and the first of them fills it."""
    folder = pathlib.Path(folder).resolve()
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return enter(folder, PACKAGES, ON_TORCH)


def enter(folder, packages, on_torch):
    """Makes the environment where it is missing. Returns the command of its Python and the variables to run it with,
    or a text that says why it cannot be had.

    packages: requirements as pip takes them. on_torch: those that name torch among what they need, torch included.
    """
    folder = pathlib.Path(folder).resolve()
    python, ready = folder / "bin" / "python", folder / "ready"
    libraries = folder / "stand-ins"
    asked = "\n".join([*packages, *on_torch])
    variables = {**os.environ, "LD_LIBRARY_PATH": str(libraries), "HF_HUB_OFFLINE": "1"}
    if ready.exists() and ready.read_text() == asked:
        return python, variables
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-compile", "--retries", "1", "--timeout", "30"]
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [*pip, *packages],
        [*pip, "--no-deps", *on_torch],
    )[: 3 if on_torch else 2]:
        outcome = subprocess.run(command, capture_output=True, text=True)
        if outcome.returncode != 0:
            return None, f"{command[-1]}: {(outcome.stderr or outcome.stdout).strip()[-300:]}"
    if on_torch:
        (torch_lib,) = folder.glob("lib/python3*/site-packages/torch/lib")
        stand_ins(torch_lib, libraries)
    ready.write_text(asked)
    return python, variables
