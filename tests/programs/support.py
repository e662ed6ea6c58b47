# SPDX-License-Identifier: Apache-2.0
"""Running the programs, and making weights for them."""

import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tensors  # noqa: E402

CONVERT, INSPECT, MAKE = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:4])
del sys.argv[1:4]


def run(program, *arguments, **options):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options)


def weights(seed, dtype, shape):
    """Heavy-tailed weights with a few zeros, both of them, as bytes."""
    source = random.Random(seed)
    values = [
        (
            source.choice((0.0, -0.0))
            if source.random() < 0.01
            else source.gauss(0, 0.02) * (20 if source.random() < 0.005 else 1)
        )
        for _ in range(tensors.count(shape))
    ]
    if dtype == "F32":
        return struct.pack(f"<{len(values)}f", *values)
    return struct.pack(f"<{len(values)}e", *values) if dtype == "F16" else tensors.bf16(values)


def presets():
    """The rows of --list as the oracle wants them."""
    rows = []
    for line in run(CONVERT, "--list").stdout.splitlines()[1:]:
        name, scale, element, block, floor, grid, source = line.split(None, 6)
        stored = {"e8m0": "U8" if block == "1x32" else "F8_E8M0", "bf16": "BF16"}.get(scale, "F32")
        (floor,) = struct.unpack("<I", struct.pack("<f", float(floor)))
        rows.append(
            {
                "name": name,
                "scale": scale,
                "element": element,
                "block": block,
                "floor": floor,
                "grid": grid,
                "stored": stored,
                "source": source,
                "options": ["--recipe", name, "--scale", scale, "--element", element.split("/")[0], "--block", block],
            }
        )
    return rows


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.dir = pathlib.Path(self.folder.name)

    def path(self, name):
        return self.dir / name

    def save(self, name, content, metadata=None):
        tensors.save(self.path(name), content, metadata)
        return self.path(name)

    def good(self, program, *arguments, **options):
        outcome = run(program, *arguments, **options)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        return outcome

    def bad(self, code, says, program, *arguments, lines=1, **options):
        """The exit code, one line (or `lines`) that says every word, and nothing new left in the folder."""
        before = sorted(os.listdir(self.dir))
        outcome = run(program, *arguments, **options)
        self.assertEqual(outcome.returncode, code, outcome.stdout + outcome.stderr)
        self.assertEqual(len(outcome.stderr.strip().splitlines()), lines, outcome.stderr)
        for word in says if isinstance(says, (list, tuple)) else [says]:
            self.assertIn(word, outcome.stderr)
        self.assertEqual(sorted(os.listdir(self.dir)), before)
        return outcome

    def report(self, path):
        return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
