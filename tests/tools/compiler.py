# SPDX-License-Identifier: Apache-2.0
"""Runs a C++ compiler over pieces of text, a few at a time. What it is asked to compile never leaves a file behind."""
import concurrent.futures
import os
import subprocess
import tempfile


def run(command, text=None, **options):
    """(exit code, stdout and stderr together), in English."""
    environment = {**os.environ, "LC_ALL": "C", **options.pop("env", {})}
    done = subprocess.run(command, input=text, text=True, errors="replace", stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=environment, **options)
    return done.returncode, done.stdout


def family(command):
    """"gcc", "clang" or "nvcc"."""
    said = run([command[0], "--version"])[1]
    return "nvcc" if "NVIDIA" in said else "clang" if "clang" in said else "gcc"


def each(function, items):
    """[function(item) ...] in order, as many at once as there are cores."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


def check_syntax(command, text):
    """Empty, or what the compiler said. The text is a whole translation unit."""
    if os.path.basename(command[0]) == "nvcc":  # reads no pipe and knows no -fsyntax-only
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "text.cu")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            code, said = run([*command, "-c", path, "-o", os.path.join(folder, "text.o")])
    else:
        code, said = run([*command, "-fsyntax-only", "-x", "c++", "-"], text)
    return said.strip() or f"exit code {code}" if code else ""
