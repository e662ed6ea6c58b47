#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every fault of fp8-refit --list-faults in a live update, and processes killed at random moments.

Usage: fault_test.py FP8_CONVERT FP8_INSPECT MAKE_CHECKPOINT FP8_REFIT [UNITTEST ARGUMENT...]
FP8_REFIT_KILLS: how many processes are killed (default 8; thousands take minutes). FP8_REFIT_SEED: of the moments.
"""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import unittest

import support
from support import MAKE, run, weights

REFIT = str(pathlib.Path(sys.argv[1]).resolve())
del sys.argv[1]
KILLS = int(os.environ.get("FP8_REFIT_KILLS", "8"))
SEED = int(os.environ.get("FP8_REFIT_SEED", "7"))


def faults():
    """(name, condition, place) of each line of --list-faults."""
    return [tuple(line.split()[:3]) for line in run(REFIT, "--list-faults").stdout.splitlines()[1:]]


def model():
    """Whatever a fault needs: fused parts of one shape, a square grid and another one, experts."""
    content, at = {}, "model.layers.0"
    shapes = [("self_attn.q_proj", [256, 256]), ("self_attn.k_proj", [256, 256]), ("self_attn.v_proj", [256, 256]),
              ("self_attn.o_proj", [256, 256]), ("mlp.gate_proj", [256, 256]), ("mlp.up_proj", [256, 256]),
              ("mlp.down_proj", [256, 384])]
    for expert in range(2):
        for part, shape in (("gate_proj", [64, 64]), ("up_proj", [64, 64]), ("down_proj", [64, 64])):
            shapes.append((f"mlp.experts.{expert}.{part}", shape))
    for name, shape in shapes:
        content[f"{at}.{name}.weight"] = ("BF16", shape, weights(name, "BF16", shape))
    content[f"{at}.input_layernorm.weight"] = ("BF16", [256], weights("norm", "BF16", [256]))
    return content


class Faults(support.Case):
    def setUp(self):
        super().setUp()
        self.model = self.save("model.safetensors", model())

    def served(self, *options):
        """What every version's dump must be, from an undisturbed run whose engines check themselves."""
        self.good(REFIT, "--rounds", 3, "--lr", 0.01, "--fault", "none", "--dump", self.path("good"), *options,
                  self.model)
        return {v: self.path(f"good/engine0-v{v}.safetensors").read_bytes() for v in (1, 2, 3)}

    def test_the_list(self):
        listed = faults()
        self.assertGreaterEqual(len(listed), 25)
        self.assertEqual({condition for _, condition, _ in listed}, {f"C{n}" for n in range(1, 11)})
        self.assertEqual(len({name for name, _, _ in listed}), len(listed))

    def test_each_is_refused_by_the_condition_that_names_it(self):
        recipes = {"block": ["--recipe", "vllm-block"], "mx": ["--recipe", "te-mxfp8"]}
        expected = {key: self.served(*options) for key, options in recipes.items()}
        for number, (name, condition, _) in enumerate(faults()):
            recipe = "mx" if name in ("scale-255", "grid-floor") else "block"
            mode = ("staged", "in-place")[number % 2]
            with self.subTest(fault=name, mode=mode):
                dumps = self.path(f"d-{name}")
                outcome = run(REFIT, "--rounds", 3, "--engines", 2, "--lr", 0.01, "--timeout", 2, "--commit", mode,
                              "--fault", name, "--dump", dumps, *recipes[recipe], self.model)
                self.assertEqual(outcome.returncode, 1, outcome.stdout + outcome.stderr)
                self.assertIn(condition + " ", outcome.stderr)
                self.assertEqual(len(outcome.stderr.strip().splitlines()), 1, outcome.stderr)
                versions = set()
                for path in dumps.iterdir() if dumps.exists() else []:
                    version = int(path.stem.rsplit("v", 1)[1])
                    versions.add((path.stem.split("-")[0], version))
                    self.assertEqual(path.read_bytes(), expected[recipe][version], path.name)
                # Version 2 is refused; only the engine that did hear a commit may have it.
                self.assertLessEqual(versions - {("engine0", 1), ("engine1", 1)},
                                     {("engine1", 2)} if name == "missed-commit" else set())

    def test_the_round_can_be_chosen(self):
        dumps = self.path("d")
        outcome = run(REFIT, "--rounds", 4, "--fault", "flip-bit@4", "--dump", dumps, self.model)
        self.assertEqual(outcome.returncode, 1)
        self.assertIn("C7 ", outcome.stderr)
        self.assertIn("engine 0 serves version 3", outcome.stderr)
        self.assertEqual(sorted(p.name for p in dumps.iterdir()), [f"engine0-v{v}.safetensors" for v in (1, 2, 3)])

    def test_persistent_parameters_take_the_learners_faults(self):
        for fault in ("partial-experts", "rename"):
            said = run(REFIT, "--fp8-param", "on", "--rounds", 2, "--fault", fault, self.model)
            self.assertEqual(said.returncode, 1, said.stderr)
            self.assertIn("C3 ", said.stderr)

    def test_an_update_that_cannot_take_a_fault_says_so(self):
        outcome = run(REFIT, "--fault", "scale-255", self.model)  # FP32 scales have no 255
        self.assertEqual(outcome.returncode, 1)
        self.assertIn("nothing in this update can take this fault", outcome.stderr)


class Kills(support.Case):
    def test_no_kill_leaves_a_mixed_version(self):
        big, dumps = self.path("big.safetensors"), self.path("d")
        self.good(MAKE, "--size", 6, big)
        common = [REFIT, "--rounds", "4", "--engines", "2", "--lr", "0.01", "--timeout", "5", "--buffer-bytes",
                  "1000000", "--dump", str(dumps), str(big)]
        began = time.monotonic()
        subprocess.run(common, check=True, stdout=subprocess.DEVNULL)
        whole = time.monotonic() - began
        expected = {v: self.path(f"d/engine0-v{v}.safetensors").read_bytes() for v in (1, 2, 3, 4)}
        source = random.Random(SEED)
        ends = {"named": 0, "finished": 0, "starter": 0, "dumps": 0}
        for trial in range(KILLS):
            for path in dumps.iterdir():
                path.unlink()
            mode = source.choice(("staged", "in-place"))
            process = subprocess.Popen(common + ["--commit", mode], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                       text=True)
            time.sleep(source.random() * whole)
            victim = None
            try:
                tasks = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
                victim = source.choice([process.pid] + [int(task) for task in tasks])
                os.kill(victim, signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError):
                pass  # it was faster
            _, said = process.communicate(timeout=30)
            if victim == process.pid:
                ends["starter"] += 1
                time.sleep(0.2)  # its children need a moment to go
            elif process.returncode == 0:
                ends["finished"] += 1
            else:
                ends["named"] += 1
                self.assertEqual(process.returncode, 1, said)
                self.assertIn("killed by signal 9", said)
            for path in dumps.iterdir():
                if path.name.startswith("."):
                    continue  # a temporary that a kill left behind; the next run removes it
                version = int(path.stem.rsplit("v", 1)[1])
                self.assertEqual(path.read_bytes(), expected[version], f"{path.name}, trial {trial} of seed {SEED}")
                ends["dumps"] += 1
        print(f"{KILLS} kills: {ends}", file=sys.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
