#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No compiler flag moves a byte. Usage: flags_test.py QUANTIZE_FILE SOURCE HOST_DIGEST SOURCE COMPILER FLAG...

Two helpers as they were built: one digests every preset by the scalar definition, the other some presets by every
vector body that can run here, which must agree among each other. Their sources are compiled again under each set of
flags, and the digests must stay what they are, also in a process that flushes subnormals.
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


def lines(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout.splitlines()


class Helper:
    def __init__(self, program, source, plain, flushing):
        self.program, self.source, self.arguments = program, source, (plain, flushing)
        self.name = os.path.basename(source)
        self.expected = lines(program, *plain)

    def faults(self, program, what):
        """Runs it in both modes; prints and counts what moved."""
        count = 0
        for arguments, mode in zip(self.arguments, ("", ", FTZ and DAZ set")):
            got = lines(program, *arguments)
            moved = [a for a, b in zip(self.expected, got) if a != b]
            same = got == self.expected
            count += not same
            verdict = "same bytes" if same else "DIFFERENT: " + "; ".join(moved[:5])
            print("%-18s %-45s %s" % (self.name, what + mode, verdict), flush=True)
        return count


def disagreements(digests):
    """Bodies that do not write what the first body of their preset writes."""
    first, count = {}, 0
    for line in digests:
        *preset, body, f32, bf16, f16 = line.split()
        if first.setdefault(tuple(preset), []) == [] or body == "scalar":
            first[tuple(preset)] = [f32, bf16, f16]
        elif first[tuple(preset)] != [f32, bf16, f16]:
            print("%s differs from the scalar body: %s" % (body, line))
            count += 1
    return count


def main():
    quantize_file, its_source, host_digest, host_source, *command = sys.argv[1:]
    helpers = [Helper(quantize_file, its_source, ["--digest"], ["--digest-ftz"]),
               Helper(host_digest, host_source, [], ["--ftz"])]
    faults = disagreements(helpers[1].expected)
    for helper in helpers:
        faults += helper.faults(helper.program, "as built")
    with tempfile.TemporaryDirectory() as folder:

        def build(job):
            helper, variant = job
            out = os.path.join(folder, helper.name + "-".join(flag.strip("-") for flag in variant).replace("/", ""))
            flags = [flag for flag in variant if flag != "-mfma" or os.uname().machine == "x86_64"]
            return subprocess.run([*command, *flags, helper.source, "-o", out], capture_output=True, text=True), out

        jobs = [(helper, variant) for variant in VARIANTS for helper in helpers]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for (helper, variant), (done, out) in zip(jobs, pool.map(build, jobs)):
                name = " ".join(variant)
                if done.returncode != 0:
                    print("%s: %s does not compile:\n%s" % (helper.name, name, done.stderr[-2000:]))
                    faults += 1
                elif "-mfma" in variant and " fma " not in open("/proc/cpuinfo").read():
                    print("%-18s %-45s not run: this processor has no FMA" % (helper.name, name))
                else:
                    faults += helper.faults(out, name)
    bodies = sorted({line.split()[-4] for line in helpers[1].expected})
    print("%d presets by definition; %d lines of the bodies %s" %
          (len(helpers[0].expected), len(helpers[1].expected), ", ".join(bodies)))
    return 1 if faults or len(helpers[0].expected) < 40 or len(bodies) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
