#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up Meson's test log: "PASSED FAILED SKIPPED", and on stderr why tests skip. Usage: count.py TESTLOG.JSON"""
import json
import pathlib
import sys


def count(lines):
    """(passed, failed, skipped, [(test, its last line)] of the skipped ones)."""
    passed = failed = 0
    skipped = []
    for line in lines:
        entry = json.loads(line)
        if entry["result"] in ("OK", "EXPECTEDFAIL"):
            passed += 1
        elif entry["result"] == "SKIP":
            said = (entry.get("stdout", "") + entry.get("stderr", "")).strip().split("\n")
            skipped.append((entry["name"], said[-1]))
        else:
            failed += 1
    return passed, failed, len(skipped), skipped


def main():
    log = pathlib.Path(sys.argv[1])
    passed, failed, skipped, reasons = count(log.read_text(encoding="utf-8").splitlines() if log.exists() else [])
    for name, reason in reasons:
        print(f"skipped {name}: {reason}", file=sys.stderr)
    print(passed, failed, skipped)


if __name__ == "__main__":
    main()
