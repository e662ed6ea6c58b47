#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fp8-refit as people run it. Usage: refit_test.py FP8_CONVERT FP8_INSPECT MAKE_CHECKPOINT FP8_REFIT"""

import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import time
import unittest

import support
import tensors
from support import CONVERT, INSPECT, MAKE, run, weights

REFIT = str(pathlib.Path(sys.argv[1]).resolve())
del sys.argv[1]

RECIPES = (["vllm-block"], ["te-block"], ["te-block", "--scale", "pow2"], ["te-mxfp8"])


def small_model():
    """Fused parts, experts, kept tensors, ragged shapes, every dtype that can be quantized."""
    content = {"embed_tokens.weight": ("BF16", [40, 64], weights(1, "BF16", [40, 64]))}
    for layer in range(3):
        at = f"model.layers.{layer}"
        for name, shape in (
            ("self_attn.q_proj", [160, 96]),
            ("self_attn.k_proj", [32, 96]),
            ("self_attn.v_proj", [32, 96]),
            ("mlp.gate_proj", [200, 96]),
            ("mlp.up_proj", [200, 96]),
            ("mlp.down_proj", [96, 224]),
        ):
            dtype = ("BF16", "F32", "F16")[layer]
            content[f"{at}.{name}.weight"] = (dtype, shape, weights(f"{at}{name}", dtype, shape))
        content[f"{at}.input_layernorm.weight"] = ("BF16", [96], weights(layer, "BF16", [96]))
    content["steps"] = ("I64", [1], struct.pack("<q", 12345))
    return content


def children(pid):
    """pid of each child by the order in which they were started: engines first, the learner last."""
    tasks = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in tasks]


class Refit(support.Case):
    def setUp(self):
        super().setUp()
        self.model = self.save("model.safetensors", small_model(), {"format": "pt"})

    def dumps(self):
        return sorted(path.name for path in self.path("d").iterdir())

    def test_engines_serve_what_convert_writes(self):
        for recipe in RECIPES:
            for mode in ("staged", "in-place"):
                with self.subTest(recipe=recipe, mode=mode):
                    options = ["--recipe", *recipe]
                    converted, dumps = self.path("out.safetensors"), self.path("d")
                    self.good(CONVERT, *options, "--force", self.model, converted)
                    self.good(REFIT, *options, "--engines", 2, "--rounds", 2, "--commit", mode, "--lr", 0,
                              "--dump", dumps, "--buffer-bytes", 40000, self.model)
                    self.assertEqual(self.dumps(), [f"engine{e}-v{v}.safetensors" for e in (0, 1) for v in (1, 2)])
                    for path in dumps.iterdir():
                        self.assertEqual(path.read_bytes(), converted.read_bytes(), path.name)

    def parallel_model(self):
        """What two ranks can load: parts of whole blocks, fused experts, two dtypes."""
        content = {"embed_tokens.weight": ("BF16", [40, 64], weights(1, "BF16", [40, 64]))}
        for layer, dtype in enumerate(("BF16", "F32")):
            at = f"model.layers.{layer}"
            for name, shape in (
                ("self_attn.q_proj", [512, 256]),
                ("self_attn.k_proj", [256, 256]),
                ("self_attn.v_proj", [256, 256]),
                ("self_attn.o_proj", [256, 512]),
                ("mlp.experts.1.gate_proj", [256, 128]),
                ("mlp.experts.1.up_proj", [256, 128]),
                ("mlp.experts.1.down_proj", [128, 256]),
                ("self_attn.kv_a_proj_with_mqa", [100, 128]),
            ):
                content[f"{at}.{name}.weight"] = (dtype, shape, weights(f"{at}{name}", dtype, shape))
        content["model.layers.0.mlp.experts.gate_up_proj"] = ("BF16", [2, 512, 64], weights(3, "BF16", [2, 512, 64]))
        content["model.layers.0.mlp.experts.down_proj"] = ("BF16", [2, 64, 256], weights(4, "BF16", [2, 64, 256]))
        return self.save("parallel.safetensors", content, {"format": "pt"})

    def test_ranks_serve_slices_that_make_up_the_whole(self):
        model = self.parallel_model()
        for recipe in (["vllm-block"], ["te-mxfp8", "--model", "deepseek-v3"]):
            converted, dumps = self.path("out.safetensors"), self.path("d")
            self.good(CONVERT, "--recipe", *recipe, "--force", model, converted)
            in_place = ["--engine-tp", 2, "--commit", "in-place", "--learners", 2]
            for more in (["--engine-tp", 2, "--engines", 2], in_place):
                with self.subTest(recipe=recipe, more=more):
                    self.good(REFIT, "--recipe", *recipe, "--rounds", 2, "--lr", 0, "--buffer-bytes", 30000, *more,
                              "--dump", dumps, model)
                    for path in dumps.iterdir():
                        self.assertEqual(path.read_bytes(), converted.read_bytes(), path.name)
        self.assertEqual(self.dumps(), [f"engine{e}-v{v}.safetensors" for e in (0, 1) for v in (1, 2)])
        self.bad(1, ["k_proj 256 rows / tp 4 = 64 is not a multiple of 128", "v_proj"], REFIT, "--engine-tp", 4, model)

    def test_layouts_travel_and_dumps_are_canonical(self):
        model = self.parallel_model()
        for recipe, layout in (
            (["vllm-block"], "te-rowwise"),
            (["te-mxfp8"], "cublas-128x4"),
            (["te-mxfp8", "--model", "deepseek-v3"], "trtllm-mxfp8-moe"),
            (["te-block", "--scale", "pow2"], "deepgemm-ue8m0"),
        ):
            converted, dumps = self.path("out.safetensors"), self.path("d")
            keep = ["--keep", "*kv_a_proj*", "--keep", "*experts.down_proj", "--keep", "*experts.gate_up_proj"]
            self.good(CONVERT, "--recipe", *recipe, *keep, "--force", model, converted)
            for more in ([], ["--engine-tp", 2], ["--commit", "in-place", "--learners", 2]):
                with self.subTest(layout=layout, more=more):
                    self.good(REFIT, "--recipe", *recipe, *keep, "--layout", layout, "--rounds", 3, "--lr", 0, *more,
                              "--dump", dumps, "--plan", self.path("plan.json"), model)
                    for path in dumps.iterdir():
                        self.assertEqual(path.read_bytes(), converted.read_bytes(), path.name)
            tensors_of = {one["name"]: one for one in self.report(self.path("plan.json"))["tensors"]}
            self.assertIn(layout, self.report(self.path("plan.json"))["encodings"][0]["text"])
            if layout == "cublas-128x4":
                scales = tensors_of["model.layers.0.self_attn.q_proj.weight_scale"]
                self.assertEqual(scales["shape"], [512 * 8])
            if layout == "deepgemm-ue8m0":
                scales = tensors_of["model.layers.0.self_attn.q_proj.weight_scale_inv"]
                self.assertEqual((scales["dtype"], scales["shape"]), ("I32", [1, 512]))
        self.bad(2, ["cublas-128x4", "vllm-block"], REFIT, "--layout", "cublas-128x4", model)
        self.bad(1, ["q_proj", "bits 0x"], REFIT, "--layout", "deepgemm-ue8m0", model)

    def test_learners_make_one_update(self):
        served = []
        for learners in (1, 2, 5):
            self.good(REFIT, "--learners", learners, "--rounds", 3, "--lr", 0.01, "--dump", self.path("d"), self.model)
            served.append(self.path("d/engine0-v3.safetensors").read_bytes())
        self.assertEqual(served[0], served[1])
        self.assertEqual(served[0], served[2])

    def test_a_killed_learner_of_several_is_named(self):
        big = self.path("big.safetensors")
        self.good(MAKE, "--size", 12, big)
        for victim in (1, 2, 3):  # behind the engine: learners 2, 1 and 0
            process = subprocess.Popen([REFIT, "--rounds", "1000", "--learners", "3", "--timeout", "5",
                                        "--lr", "0.01", str(big)],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            while len(children(process.pid)) < 4:
                time.sleep(0.01)
            time.sleep(0.3)
            os.kill(children(process.pid)[victim], signal.SIGKILL)
            _, said = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 1, said)
            self.assertIn(f"learner {3 - victim} (pid", said)
            self.assertIn("killed by signal 9", said)

    def test_weights_move_and_engines_agree(self):
        self.good(REFIT, "--engines", 2, "--rounds", 3, "--lr", 0.01, "--dump", self.path("d"), self.model)
        version = lambda engine, number: self.path(f"d/engine{engine}-v{number}.safetensors").read_bytes()
        for number in (1, 2, 3):
            self.assertEqual(version(0, number), version(1, number))
        self.assertNotEqual(version(0, 1), version(0, 2))
        self.assertNotEqual(version(0, 2), version(0, 3))

    def test_the_seed_decides_the_moves(self):
        served = []
        for seed in (1, 1, 2):
            self.good(REFIT, "--rounds", 2, "--lr", 0.01, "--seed", seed, "--dump", self.path("d"), self.model)
            served.append(self.path("d/engine0-v2.safetensors").read_bytes())
        self.assertEqual(served[0], served[1])
        self.assertNotEqual(served[0], served[2])

    def test_fp8_parameters_serve_the_bytes_of_an_unquantized_learner(self):
        """Masters of every dtype, refreshed by one learner or by three whose cuts fall anywhere in a block."""
        for recipe in RECIPES + (["vllm-block", "--via-bf16"],):
            served = {}
            for name, options in (("off", []), ("on", ["--fp8-param", "on"]),
                                  ("three", ["--fp8-param", "on", "--learners", 3])):
                with self.subTest(recipe=recipe, options=options):
                    self.good(REFIT, "--recipe", *recipe, "--rounds", 3, "--lr", 0.01, "--dump", self.path("d"),
                              *options, self.model)
                    served[name] = [path.read_bytes() for path in sorted(self.path("d").iterdir())]
                    self.assertEqual(served[name], served["off"])
            self.assertNotEqual(served["off"][0], served["off"][1])

    def test_fp8_parameters_reach_the_ranks_of_an_engine(self):
        model, served = self.parallel_model(), []
        for options in ([], ["--fp8-param", "on", "--engine-tp", 2], ["--fp8-param", "on", "--engine-tp", 2,
                                                                     "--learners", 3, "--commit", "in-place"]):
            self.good(REFIT, "--rounds", 3, "--lr", 0.01, "--buffer-bytes", 30000, "--dump", self.path("d"), *options,
                      model)
            served.append([path.read_bytes() for path in sorted(self.path("d").iterdir())])
        self.assertEqual(len(served[0]), 3)
        self.assertNotEqual(served[0][0], served[0][2])
        self.assertEqual(served[1], served[0])
        self.assertEqual(served[2], served[0])

    def test_fp8_parameters_count_what_a_step_changes(self):
        tensors_of = lambda count: [shape for _, shape, _ in small_model().values() if len(shape) == 2][1:count]
        masters = sum(shape[0] * shape[1] for shape in tensors_of(100))
        scales = sum(-(-shape[0] // 128) * -(-shape[1] // 128) for shape in tensors_of(100))
        counts = {}
        for learners in (1, 3):
            report = json.loads(self.good(REFIT, "--rounds", 3, "--fp8-param", "on", "--learners", learners, "--json",
                                          "-", self.model).stdout)
            counts[learners] = [row["refresh"] for row in report["versions"]]
            for row in counts[learners]:
                self.assertGreater(row.pop("saved_bytes"), 0)
                self.assertGreater(row.pop("start_peak_bytes"), 0)
        self.assertEqual(counts[1], counts[3])
        first, second, third = counts[1]
        self.assertEqual((first["masters"], first["masters_changed"]), (masters, 0))
        self.assertEqual((first["scales"], first["scales_changed"]), (scales, scales))
        for later in (second, third):
            self.assertGreater(later["masters_changed"], 0.9 * masters)
            self.assertLess(later["codes_changed"], 0.05 * masters)
            self.assertEqual(later["blocks_moved"], 0)
        said = self.good(REFIT, "--rounds", 1, "--fp8-param", "on", self.model).stdout
        self.assertIn(f"of {masters} masters 0 changed", said)

    def test_fp8_parameters_refuse_nan_and_survive_a_killed_learner(self):
        content = small_model()
        name = "model.layers.1.mlp.up_proj.weight"
        data = bytearray(content[name][2])
        data[4 * 7777 : 4 * 7778] = struct.pack("<f", float("nan"))
        content[name] = ("F32", content[name][1], bytes(data))
        broken = self.save("broken.safetensors", content)
        for learners in (1, 3):
            self.bad(1, [name, "7777"], REFIT, "--fp8-param", "on", "--learners", learners, broken)
        self.good(REFIT, "--nonfinite", "tool", "--rounds", 1, "--fp8-param", "on", "--learners", 2, broken)
        process = subprocess.Popen([REFIT, "--rounds", "1000000", "--fp8-param", "on", "--learners", "3",
                                    "--timeout", "5", str(self.model)],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while len(children(process.pid)) < 4:
            time.sleep(0.01)
        time.sleep(0.3)
        os.kill(children(process.pid)[1], signal.SIGKILL)
        _, said = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 1, said)
        self.assertIn("killed by signal 9", said)

    def test_the_plan_covers_every_tensor_and_splits_no_unit(self):
        for capacity in (1, 5000, 100000, 1 << 26):
            arguments = ["--rounds", 1, "--buffer-bytes", capacity, "--plan", "-", self.model]
            plan = json.loads(self.good(REFIT, *arguments).stdout)
            self.assertEqual(plan["capacity"], capacity)
            names, home = [], {}
            for number, buffer in enumerate(plan["buffers"]):
                self.assertEqual(buffer["index"], number)
                end = 0
                for entry in buffer["entries"]:
                    self.assertEqual(entry["offset"] % plan["alignment"], 0)
                    self.assertGreaterEqual(entry["offset"], end)
                    end = entry["offset"] + entry["nbytes"]
                    self.assertEqual(home.setdefault(entry["unit"], number), number, "a unit in two buffers")
                    names.append(entry["name"])
                self.assertLessEqual(end, plan["slot_bytes"])
                if buffer["used"] > capacity:
                    self.assertTrue(buffer["oversized"])
            self.assertEqual(len(names), len(set(names)))
            for name, (_, shape, _) in small_model().items():
                self.assertIn(name, names)
            pair = {entry["name"]: entry for buffer in plan["buffers"] for entry in buffer["entries"]}
            gate, up = (f"model.layers.0.mlp.{part}_proj.weight" for part in ("gate", "up"))
            units = {pair[name + suffix]["unit"] for name in (gate, up) for suffix in ("", "_scale_inv")}
            self.assertEqual(len(units), 1)
            self.assertEqual(plan["peak_bytes"], 2 * plan["slot_bytes"])

    def test_figures_of_every_version(self):
        report = json.loads(self.good(REFIT, "--rounds", 3, "--json", "-", self.model).stdout)
        self.assertEqual([row["version"] for row in report["versions"]], [1, 2, 3])
        for row in report["versions"]:
            for key in ("bytes", "buffers", "seconds", "gb_per_s", "quantize_s", "transfer_s", "load_s", "allocations"):
                self.assertGreaterEqual(row[key], 0, key)
        self.assertEqual(report["engines"], [{"engine": 0, "serving": 3}])

    def test_nan_and_inf_are_refused_and_the_old_version_serves(self):
        content = small_model()
        name = "model.layers.1.mlp.up_proj.weight"
        data = bytearray(content[name][2])
        data[4 * 777 : 4 * 778] = struct.pack("<f", float("inf"))
        content[name] = ("F32", content[name][1], bytes(data))
        broken = self.save("broken.safetensors", content)
        self.bad(1, [name, "777"], REFIT, "--engines", 2, broken)
        self.good(REFIT, "--nonfinite", "tool", "--rounds", 1, broken)

    def test_shapes_that_mxfp8_cannot_take(self):
        odd = self.save("odd.safetensors", {"a.weight": ("BF16", [4, 40], weights(1, "BF16", [4, 40]))})
        self.bad(1, ["C5 a.weight", "40", "32", "--keep"], REFIT, "--recipe", "te-mxfp8", odd)

    def test_wrong_usage(self):
        for arguments, says in (
            (["--transport", "nccl"], "shm"),
            (["--transport", "pigeon"], "shm"),
            (["--commit", "maybe"], "staged"),
            (["--timeout", "0"], "timeout"),
            (["--lr", "-1"], "lr"),
            (["--align", "100"], "align"),
            (["--slots", "0"], "slots"),
            (["--recipe", "nobody"], "vllm-block"),
            (["--delta", "on"], "not available yet"),
            (["--fp8-param", "maybe"], "off or on"),
            (["--fault", "pigeon"], "list-faults"),
            (["--fault", "drop@0"], "rounds"),
            (["--fault", "drop@x"], "ROUND"),
            (["--seed", "-1"], "-1"),
            (["--seed", "18446744073709551616"], "18446744073709551616"),
            (["--buffer-bytes", "-1"], "-1"),
            (["--dump="], "value"),
            (["--dump", ""], "empty"),
        ):
            with self.subTest(arguments=arguments):
                self.bad(2, says, REFIT, *arguments, self.model)
        self.bad(2, "checkpoint", REFIT)
        self.bad(1, "missing.safetensors", REFIT, self.path("missing.safetensors"))

    def test_any_process_may_die_at_any_moment(self):
        """After every kill the dumps are whole, and no version is mixed."""
        big = self.path("big.safetensors")
        self.good(MAKE, "--size", 12, big)
        dumps = self.path("d")
        self.good(REFIT, "--rounds", 4, "--engines", 2, "--lr", 0.01, "--dump", dumps, big)
        expected = {number: self.path(f"d/engine0-v{number}.safetensors").read_bytes() for number in range(1, 5)}
        source = random.Random(7)
        ends = {"named": 0, "whole": 0}
        for trial in range(16):
            mode = source.choice(("staged", "in-place"))
            for path in dumps.iterdir():
                path.unlink()
            process = subprocess.Popen(
                [REFIT, "--rounds", "4", "--engines", "2", "--lr", "0.01", "--dump", str(dumps), "--commit", mode,
                 "--timeout", "5", "--buffer-bytes", "1000000", str(big)],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            time.sleep(source.random() * 0.8)
            try:
                family = children(process.pid)
                victim = source.choice(family + [process.pid]) if family else process.pid
                os.kill(victim, signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError):
                victim = None
            began = time.monotonic()
            _, said = process.communicate(timeout=30)
            self.assertLess(time.monotonic() - began, 12)
            if victim is not None and victim != process.pid and process.returncode != 0:
                self.assertEqual(process.returncode, 1, said)
                self.assertIn("killed by signal 9", said)
                ends["named"] += 1
            time.sleep(0.3)  # children of a killed parent need a moment to go
            for path in dumps.iterdir():
                if path.name.startswith("."):
                    continue  # a temporary that a kill left behind; the next run removes it
                number = int(path.stem.rsplit("v", 1)[1])
                self.assertEqual(path.read_bytes(), expected[number], f"{path.name} after trial {trial}")
                ends["whole"] += 1
        self.assertGreater(ends["named"], 0)

    def disturbed(self, number, kind, *options, timeout=1):
        """What is said when child `number` of two engines and a learner gets a signal once version 1 serves."""
        process = subprocess.Popen([REFIT, "--rounds", "100000", "--engines", "2", "--lr", "0.01", "--timeout",
                                    str(timeout), *map(str, options), str(self.model)],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.stdout.readline()
        began = time.monotonic()
        os.kill(process.pid if number is None else children(process.pid)[number], kind)
        _, said = process.communicate(timeout=30)
        self.assertLess(time.monotonic() - began, timeout + 5)
        return process.returncode, said

    def test_who_is_stopped_is_named_within_the_timeout(self):
        for number, name in ((1, "engine 1"), (2, "learner")):
            with self.subTest(name):
                code, said = self.disturbed(number, signal.SIGSTOP)
                self.assertEqual(code, 1, said)
                self.assertRegex(said, f"C[78] .*{name}")

    def test_the_last_word_says_what_each_engine_serves(self):
        code, said = self.disturbed(1, signal.SIGKILL)
        self.assertEqual(code, 1, said)
        self.assertRegex(said, r"C8 engine 1 \(pid [0-9]+\) was killed by signal 9; engine 0 serves version [0-9]+; "
                               "engine 1 serves nothing")
        code, said = self.disturbed(2, signal.SIGKILL)
        self.assertEqual(code, 1, said)
        self.assertRegex(said, r"C8 learner \(pid [0-9]+\) was killed by signal 9; engine 0 serves version [0-9]+; "
                               "engine 1 serves version [0-9]+")
        # Weights that the second step carries past the largest BF16.
        largest = self.save("largest.safetensors", {"a.weight": ("BF16", [64, 64], b"\x7f\x7f" * 4096)})
        for mode, serves in (("staged", "serves version 1"), ("in-place", "serves nothing")):
            said = self.bad(1, ["C9 a.weight: holds NaN or Inf", "--keep 'a.weight'"], REFIT, "--engines", 2, "--lr",
                            1, "--rounds", 20, "--commit", mode, "--json", self.path("r.json"), largest).stderr
            for engine in (0, 1):
                self.assertRegex(said, f"engine {engine} (serves nothing|{serves})")
            if mode == "staged":
                self.assertIn("engine 0 serves version 1; engine 1 serves version 1", said)

    def test_slots_are_as_many_as_the_order_of_the_tensors_needs(self):
        at = "model.layers.0.self_attn."
        content = {}
        for name, shape in (("k_proj", [32, 64]), ("k_norm", [4096]), ("q_norm", [4096]), ("q_proj", [64, 64]),
                            ("v_proj", [32, 64])):
            content[f"{at}{name}.weight"] = ("BF16", shape, weights(name, "BF16", shape))
        apart = self.save("apart.safetensors", content)
        small = ["--rounds", 1, "--buffer-bytes", 4096]
        plan = json.loads(self.good(REFIT, *small, "--plan", "-", apart).stdout)
        self.assertEqual((plan["slots"], len(plan["buffers"])), (3, 3))
        self.good(REFIT, *small, "--fault", "none", "--slots", 3, apart)
        self.bad(1, ["--slots 2", "3 buffers", "--slots 3"], REFIT, *small, "--slots", 2, apart)
        self.assertEqual(json.loads(self.good(REFIT, "--rounds", 1, "--plan", "-", apart).stdout)["slots"], 2)
        kept = {f"norms.{i}.weight": ("BF16", [4096], bytes(8192)) for i in range(1100)}
        k_proj = f"{at}k_proj.weight"
        far = self.save("far.safetensors", {k_proj: content[k_proj], **kept, **content})
        self.bad(1, ["1024 at most", "--buffer-bytes"], REFIT, *small, far)

    def test_codes_are_nothing_to_start_from(self):
        codes = self.path("codes.safetensors")
        self.good(CONVERT, self.model, codes)
        self.bad(1, ["is F8_E4M3 already", "the checkpoint that it was made of"], REFIT, codes)

    def test_an_interruption_leaves_nothing(self):
        for kind in (signal.SIGINT, signal.SIGTERM):
            dumps = self.path("d")
            code, said = self.disturbed(None, kind, "--dump", dumps, "--plan", self.path("p"), "--json",
                                        self.path("j"))
            self.assertEqual((code, said), (-kind, ""))
            # Whole dumps, or no folder where the signal came before the first of them.
            if dumps.exists():
                self.assertNotEqual(self.dumps(), [])
                for name in self.dumps():
                    self.assertRegex(name, r"^engine[01]-v[0-9]+\.safetensors$")
                    self.good(INSPECT, dumps / name)
            self.assertEqual(sorted({*os.listdir(self.dir), "d"}), ["d", "model.safetensors"])

    def test_half_dumps_of_dead_engines_are_removed(self):
        dumps = self.path("d")
        dumps.mkdir()
        gone = subprocess.Popen(["true"])
        gone.wait()
        (dumps / f".engine7-v1.safetensors.tmp-{gone.pid}").write_bytes(b"half")
        (dumps / ".engine7-v1.safetensors.tmp-1").write_bytes(b"somebody's")
        os.utime(dumps / ".engine7-v1.safetensors.tmp-1")
        self.good(REFIT, "--rounds", 1, "--dump", dumps, self.model)
        self.assertEqual(self.dumps(), [".engine7-v1.safetensors.tmp-1", "engine0-v1.safetensors"])

    def test_outputs_never_meet_the_checkpoint_or_each_other(self):
        before = self.model.read_bytes()
        for option in ("--plan", "--json"):
            self.bad(2, [option, "written over"], REFIT, option, self.model, self.model)
        self.bad(2, "one place for two", REFIT, "--json", "-", "--plan", "-", self.model)
        self.bad(2, "one place for two", REFIT, "--json", self.path("r"), "--plan", self.path("r"), self.model)
        self.assertEqual(self.model.read_bytes(), before)
        folder = self.path("folder")
        self.good(MAKE, "--size", 1, folder)
        self.bad(2, "--dump", REFIT, "--dump", folder, folder)
        old = self.path("engine0-v1.safetensors")
        old.write_bytes(before)
        self.bad(2, "--dump", REFIT, "--dump", self.dir, old)

    def test_places_for_outputs_are_found_before_anybody_starts(self):
        file = self.path("file")
        file.write_bytes(b"")
        for arguments, says in (
            (["--plan", "/nowhere/p"], "/nowhere"),
            (["--json", "/nowhere/p"], "/nowhere"),
            (["--json", self.dir], "is a folder"),
            (["--dump", file], "is no folder"),
            (["--dump", self.path("none/d")], "none/d"),
        ):
            with self.subTest(arguments=arguments):
                self.assertNotIn("version", self.bad(1, says, REFIT, *arguments, self.model).stdout)
        self.bad(1, "/nowhere", REFIT, "--dump", self.path("d"), "--plan", "/nowhere/p", self.model)

    def test_patterns_that_match_nothing_are_named(self):
        outcome = run(REFIT, "--only", "zzz", self.model)
        self.assertEqual(outcome.returncode, 1)
        self.assertIn("--only 'zzz': no tensor that becomes FP8 matches", outcome.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
