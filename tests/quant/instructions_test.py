#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Instructions an element, which do not vary from run to run as seconds do. Usage: instructions_test.py PROGRAM

Counted by callgrind over 256 x 4096 Gaussian weights. No row may take more than its bound: docs/performance.md has what
they take. Exits with 77 (skipped) where there is no valgrind or no AVX2.
"""

import re
import shutil
import subprocess
import sys
import tempfile

# By work of tools/count_instructions.cpp.
BOUNDS = {
    "bf16_128x128": 1.6,
    "bf16_128x128_delta": 1.95,
    "bf16_mxfp8": 1.6,
    "f32_128x128": 2.05,
    "f32_128x128_divided": 2.15,
    "f32_mxfp8": 2.0,
    "fp16_128x128": 2.3,
    "bf16_128x128_portable": 11.0,
}


def instructions(program, work):
    """An element's share."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["valgrind", "--tool=callgrind", "--toggle-collect=counted",
                               f"--callgrind-out-file={folder}/out", program, work], capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"{work}: callgrind exits with {done.returncode}:\n{done.stderr[-2000:]}")
    return int(found[1]) / int(done.stdout)


def main():
    if not shutil.which("valgrind"):
        print("SKIP: no valgrind")
        return 77
    if " avx2 " not in open("/proc/cpuinfo").read():
        print("SKIP: this processor has no AVX2")
        return 77
    taken = {work: instructions(sys.argv[1], work) for work in BOUNDS}
    above = [work for work in BOUNDS if taken[work] > BOUNDS[work]]
    for work, bound in BOUNDS.items():
        print("%-22s %6.2f of %5.2f %s" % (work, taken[work], bound, "TOO MANY" if work in above else ""))
    # The count can tell bodies apart, or it counts something else.
    blind = not BOUNDS["bf16_128x128"] < taken["f32_128x128"] < taken["bf16_128x128_portable"]
    if blind:
        print("the bound of BF16 blocks would pass FP32, or AVX2 and the portable body count alike")
    return 1 if above or blind else 0


if __name__ == "__main__":
    sys.exit(main())
