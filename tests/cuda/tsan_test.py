#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernel bodies on fibers under ThreadSanitizer. Usage: tsan_test.py [run_emulated, built with -fsanitize=thread].

All kernels run without a report; with a barrier taken out there must be one, of a data race and in the exit code.
Exit code 77, and the reason, where the sanitizer cannot be had.
"""
import platform
import shutil
import subprocess
import sys

REPORTED = 66  # the sanitizer's own exit code


def run(program, *arguments):
    """Exit code and text."""
    done = subprocess.run([*program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False)
    return done.returncode, done.stdout


def started(program):
    """The command with which it starts; empty where its memory never fits. Address randomisation can be too much for
    older runtimes."""
    fixed = [shutil.which("setarch") or "setarch", platform.machine(), "-R", program]
    for command in ([program], fixed):
        try:
            _, text = run(command, "--nothing")
        except OSError:
            continue
        if "FATAL: ThreadSanitizer" not in text:
            return command
    return []


def main():
    if len(sys.argv) < 2:
        print("SKIP: the compiler links nothing with -fsanitize=thread")
        return 77
    program = started(sys.argv[1])
    if not program:
        print("SKIP: ThreadSanitizer does not start here:", run([sys.argv[1]], "--nothing")[1][:300])
        return 77
    failed = 0
    code, text = run(program)
    if code != 0 or "ThreadSanitizer" in text:
        print(f"FAIL: exit code {code} without a fault\n{text[-4000:]}")
        failed += 1
    for fault in ["--no-barriers", "--no-second-barrier"]:
        code, said = run(program, fault)
        if code != REPORTED or "WARNING: ThreadSanitizer: data race" not in said:
            print(f"FAIL: {fault} is not reported: exit code {code}\n{said[-2000:]}")
            failed += 1
    print(text.strip().split("\n")[-1] + f"; 2 planted faults; {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
