#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No compiler flag moves a byte. Usage: flags_test.py QUANTIZE_FILE SOURCE COMPILER FLAG...

QUANTIZE_FILE is the helper as it was built; its source is compiled again under each set of flags, and every preset's
digest
over edge cases and noise of all magnitudes must stay what it is, also in a process that flushes subnormals.
"""

import concurrent.futures
import os
import subprocess
import sys
import tempfile

VARIANTS = [
    ["-O0"],
    ["-O2", "-ffast-math"],
    ["-O2", "-ffp-contract=fast", "-mfma"],
    ["-O3", "-march=native"],
    ["-O1", "-fno-exceptions", "-fno-rtti"],
]


def digests(program, argument):
    return subprocess.run([program, argument], capture_output=True, text=True, check=True).stdout


def main():
    program, source, *command = sys.argv[1:]
    baseline = digests(program, "--digest")
    faults = 0

    def report(what, got):
        nonlocal faults
        moved = [a for a, b in zip(baseline.splitlines(), got.splitlines()) if a != b]
        same = got == baseline
        faults += not same
        print("%-40s %s" % (what, "same bytes" if same else "DIFFERENT: " + "; ".join(moved[:5])), flush=True)

    report("FTZ and DAZ set", digests(program, "--digest-ftz"))
    with tempfile.TemporaryDirectory() as folder:

        def build(variant):
            out = os.path.join(folder, "-".join(flag.strip("-") for flag in variant).replace("/", ""))
            flags = [flag for flag in variant if flag != "-mfma" or os.uname().machine == "x86_64"]
            done = subprocess.run([*command, *flags, source, "-o", out], capture_output=True, text=True)
            return out, done

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for variant, (out, done) in zip(VARIANTS, pool.map(build, VARIANTS)):
                name = " ".join(variant)
                if done.returncode != 0:
                    print("%s does not compile:\n%s" % (name, done.stderr[-2000:]))
                    faults += 1
                    continue
                if "-mfma" in variant and " fma " not in open("/proc/cpuinfo").read():
                    print("%-40s not run: this processor has no FMA" % name)
                    continue
                report(name, digests(out, "--digest"))
                report(name + ", FTZ and DAZ set", digests(out, "--digest-ftz"))
    lines = len(baseline.splitlines())
    print("%d presets" % lines)
    return 1 if faults or lines < 40 else 0


if __name__ == "__main__":
    sys.exit(main())
