#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recorded updates give the Python reader the same bytes; a flipped bit is refused.

Usage: reader_test.py RECORD_UPDATE
"""
import pathlib
import subprocess
import sys
import tempfile

READER = pathlib.Path(__file__).with_name("reader.py")


def read(recording, prefix):
    return subprocess.run([sys.executable, READER, recording, prefix], capture_output=True, text=True)


def main(program):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([program, folder], check=True)
        names = sorted(p.stem for p in folder.glob("*.wire"))
        assert names == ["block", "cut", "mx", "one-buffer"], names
        for name in names:
            recording = folder / f"{name}.wire"
            ran = read(recording, folder / name)
            assert ran.returncode == 0, ran.stderr
            assert "version 2 aborted: code 24, learner: changed its mind" in ran.stdout, ran.stdout
            for version in (1, 3):
                received = (folder / f"{name}-v{version}.received").read_bytes()
                assert received == (folder / f"{name}-v{version}.expected").read_bytes(), (name, version)
            assert not (folder / f"{name}-v2.received").exists()
        # A bit of the first buffer: behind hello, begin and the frame.
        raw = bytearray((folder / "block.wire").read_bytes())
        hello = int.from_bytes(raw[8:16], "little")
        raw[16 + hello + 24 + 48 + 5] ^= 1
        (folder / "bad.wire").write_bytes(raw)
        ran = read(folder / "bad.wire", folder / "bad")
        assert ran.returncode == 1 and "embed.weight: checksum" in ran.stderr, (ran.returncode, ran.stderr)
        assert not list(folder.glob("bad-*.received"))
        print(f"{len(names)} recordings received byte for byte")


if __name__ == "__main__":
    main(sys.argv[1])
