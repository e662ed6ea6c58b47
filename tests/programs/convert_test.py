#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fp8-convert as people run it. Usage: convert_test.py FP8_CONVERT FP8_INSPECT MAKE_CHECKPOINT"""

import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import time
import unittest

import support
import oracle
import tensors
from support import CONVERT, MAKE, run, weights


def every_dtype():
    """Weights of each dtype that can be quantized, and a tensor of each that cannot."""
    content = {
        "a.bf16.weight": ("BF16", [33, 96], weights(1, "BF16", [33, 96])),
        "b.f16.weight": ("F16", [20, 64], weights(2, "F16", [20, 64])),
        "c.f32.weight": ("F32", [130, 32], weights(3, "F32", [130, 32])),
        "d.experts.weight": ("BF16", [2, 5, 64], weights(4, "BF16", [2, 5, 64])),
        "e.empty.weight": ("BF16", [0, 64], b""),
        "f.zero.weight": ("F32", [4, 32], bytes(4 * 4 * 32)),
        "g.bias": ("BF16", [33], weights(5, "BF16", [33])),
        "h.scalar": ("F32", [], struct.pack("<f", 1.5)),
    }
    for dtype, width in tensors.WIDTH.items():
        if dtype not in ("BF16", "F16", "F32"):
            content[f"x.{dtype}.weight"] = (
                dtype,
                [3, 5],
                bytes(range(1, 1 + 15 * width)) if width == 1 else bytes(15 * width),
            )
    return content


class Bytes(support.Case):
    def check_outputs(self, content, out, preset, suffix, floor=None):
        made, metadata = tensors.load(out)
        names = set(content)
        for name, (dtype, shape, data) in content.items():
            if dtype not in ("BF16", "F16", "F32") or len(shape) not in (2, 3):
                self.assertEqual(made[name], (dtype, shape, data), name)
                continue
            scale = name[: -len(".weight")] + suffix
            names.add(scale)
            codes, scales = oracle.quantize(preset, dtype, shape, data, floor)
            height, width = map(int, preset["block"].split("x"))
            grid = shape[:-2] + [-(-shape[-2] // height), -(-shape[-1] // width)]
            self.assertEqual(
                made[name],
                ("F8_E5M2" if preset["element"].startswith("e5m2") else "F8_E4M3", shape, codes),
                (preset, name),
            )
            self.assertEqual(made[scale], (preset["stored"], grid, scales), (preset, scale))
        self.assertEqual(set(made), names)
        self.assertEqual(metadata["fp8wire.recipe"], preset["name"])
        return metadata

    def test_every_preset_makes_the_oracles_bytes_of_every_dtype(self):
        content = every_dtype()
        source = self.save("in.safetensors", content, {"format": "pt", "note": "héllo"})
        for preset in support.presets():
            out = self.path("out.safetensors")
            self.good(CONVERT, *preset["options"], "--force", "--verify", source, out)
            suffix = (
                ".weight_scale_from_checkpoint"
                if preset["name"] == "nemo-mxfp8"
                else ".weight_scale" if "mxfp8" in preset["name"] else ".weight_scale_inv"
            )
            metadata = self.check_outputs(content, out, preset, suffix)
            self.assertEqual(metadata["note"], "héllo")
            self.assertEqual(metadata["fp8wire.grid_id"], preset["grid"])

    def test_namings_floor_and_threads(self):
        content = {"a.weight": ("F32", [130, 160], weights(6, "F32", [130, 160]))}
        source, preset = self.save("in.safetensors", content), next(
            p for p in support.presets() if p["name"] == "vllm-block"
        )
        mx = next(p for p in support.presets() if p["name"] == "te-mxfp8")
        for naming, block, exponents in (
            ("vllm", ".weight_scale_inv", ".weight_scale"),
            ("sglang", ".weight_scale_inv", ".weight_scale_inv"),
            ("nemo", ".weight_scale_inv", ".weight_scale_from_checkpoint"),
            ("modelopt", ".weight_scale", ".weight_scale"),
            ("skyrl", ".weight_scale_inv", ".weight_scale"),
            ("compressed-tensors", ".weight_scale", ".weight_scale"),
        ):
            out = self.path(f"{naming}.safetensors")
            self.good(CONVERT, "--naming", naming, "--threads", 1, source, out)
            self.check_outputs(content, out, preset, block)
            self.good(CONVERT, "--naming", naming, "--recipe", "te-mxfp8", "--threads", 3, "--force", source, out)
            self.check_outputs(content, out, mx, exponents)
        one = struct.unpack("<I", struct.pack("<f", 1.0))[0]
        self.good(CONVERT, "--amax-floor", 1, source, self.path("floor.safetensors"))
        self.check_outputs(content, self.path("floor.safetensors"), preset, ".weight_scale_inv", one)

    def test_via_bf16_is_the_bytes_of_rounded_weights_under_another_grid(self):
        data = weights(7, "F32", [40, 64])
        values = tensors.floats("F32", data)
        self.good(
            CONVERT,
            "--via-bf16",
            "--verify",
            self.save("in.safetensors", {"a.weight": ("F32", [40, 64], data)}),
            self.path("a.safetensors"),
        )
        self.good(
            CONVERT,
            self.save("b.safetensors", {"a.weight": ("BF16", [40, 64], tensors.bf16(values))}),
            self.path("c.safetensors"),
        )
        (via, via_metadata), (direct, metadata) = tensors.load(self.path("a.safetensors")), tensors.load(
            self.path("c.safetensors")
        )
        self.assertEqual(via, direct)
        self.assertNotEqual(via_metadata["fp8wire.grid_id"], metadata["fp8wire.grid_id"])

    def test_unaligned_input(self):
        # An odd number of bytes before an FP32 tensor, as writers that sort nothing leave them.
        content = {"0": ("U8", [3], b"abc"), "a.weight": ("F32", [8, 64], weights(8, "F32", [8, 64]))}
        self.good(CONVERT, "--verify", self.save("in.safetensors", content), self.path("out.safetensors"))
        self.check_outputs(
            content,
            self.path("out.safetensors"),
            next(p for p in support.presets() if p["name"] == "vllm-block"),
            ".weight_scale_inv",
        )

    def test_layouts_of_engines(self):
        content = {
            "a.weight": ("BF16", [200, 192], weights(9, "BF16", [200, 192])),
            "b.weight": ("BF16", [2, 128, 256], weights(10, "BF16", [2, 128, 256])),
        }
        source, out = self.save("in.safetensors", content), self.path("out.safetensors")
        canonical = {}
        for recipe, layout in (
            ("te-mxfp8", "canonical"),
            ("te-mxfp8", "cublas-128x4"),
            ("te-mxfp8", "cublas-8x4"),
            ("te-mxfp8", "deepgemm-ue8m0"),
            ("te-mxfp8", "te-rowwise"),
            ("vllm-block", "deepgemm-fp32"),
            ("vllm-block", "te-rowwise"),
            ("vllm-block", "cutlass-mn"),
        ):
            self.good(CONVERT, "--force", "--verify", "--recipe", recipe, "--layout", layout, source, out)
            made, metadata = tensors.load(out)
            self.assertEqual(metadata["fp8wire.layout"], layout)
            self.assertIn(layout if layout != "canonical" else "E8M0", self.good(support.INSPECT, out).stdout)
            if layout == "canonical":
                canonical = made
            if layout == "cublas-128x4":
                scales, swizzled = canonical["a.weight_scale"][2], bytearray(256 * 8)
                for row in range(200):
                    for col in range(6):
                        at = (row // 128 * 2 + col // 4) * 512 + row % 32 * 16 + row % 128 // 32 * 4 + col % 4
                        swizzled[at] = scales[row * 6 + col]
                self.assertEqual(made["a.weight_scale"][2], bytes(swizzled))
                self.assertEqual(made["a.weight"], canonical["a.weight"])
        self.bad(1, ["no power of two", "--scale pow2"], CONVERT, "--force", "--layout", "deepgemm-ue8m0", source, out)
        self.bad(2, ["cublas-8x4", "vllm-block"], CONVERT, "--force", "--layout", "cublas-8x4", source, out)

    def test_every_layout_survives_a_file(self):
        """--verify takes each back from the file and proves every byte; what it covers is what --list-layouts lists."""
        at = "model.layers.0"
        content = {
            f"{at}.self_attn.o_proj.weight": ("BF16", [256, 512], weights(11, "BF16", [256, 512])),
            f"{at}.mlp.experts.gate_up_proj": ("BF16", [2, 512, 256], weights(12, "BF16", [2, 512, 256])),
            f"{at}.mlp.experts.down_proj": ("BF16", [2, 256, 256], weights(13, "BF16", [2, 256, 256])),
        }
        source, out = self.save("in.safetensors", content), self.path("out.safetensors")
        listed = [line.split() for line in self.good(CONVERT, "--list-layouts").stdout.splitlines()[1:]]
        presets = {
            "128x128 fp32": ["te-block", "--scale", "pow2"],
            "128x128 e8m0": ["deepgemm-block", "--scale", "e8m0"],
            "1x128 fp32": ["te-block", "--block", "1x128", "--scale", "pow2"],
            "1x32 e8m0": ["te-mxfp8"],
            "32x1 e8m0": ["te-mxfp8", "--block", "32x1"],
        }
        tried = set()
        for name, block, scale, *_ in listed:
            recipe = presets.get(f"{block} {scale}")
            if recipe is None or (name, block, scale) in tried:
                continue
            tried.add((name, block, scale))
            with self.subTest(layout=name, recipe=recipe):
                self.good(CONVERT, "--force", "--verify", "--model", "qwen3-moe", "--recipe", *recipe, "--layout", name,
                          source, out)
                said = self.good(support.INSPECT, out).stdout
                self.assertIn("0 broken", said)
                if name != "canonical":
                    self.assertIn(f"read back from {name}", said)
        # No preset gives a matrix one scale, so that a layout for nothing else is for the library's users.
        self.assertEqual({line[0] for line in listed} - {name for name, *_ in tried}, {"sglang-fp8-moe"})
        only = ["--layout", "sglang-fp8-moe"]
        self.bad(2, ["sglang-fp8-moe", "takes no weight"], CONVERT, "--force", *only, source, out)
        self.assertIn("0x3f800000", next(line for line in listed if line[0] == "te-rowwise"))

    def test_the_report_says_what_happened(self):
        source = self.save("in.safetensors", every_dtype())
        self.good(
            CONVERT,
            "--json",
            self.path("r.json"),
            "--keep",
            "b.*",
            "--only",
            "[ab]*",
            source,
            self.path("out.safetensors"),
        )
        report = self.report(self.path("r.json"))
        self.assertEqual((report["recipe"], report["amax_floor"]), ("vllm-block", 1e-10))
        rows = {row["name"]: row for row in report["tensors"]}
        self.assertEqual(set(rows), set(every_dtype()))
        self.assertEqual(rows["a.bf16.weight"]["action"], "quantized")
        self.assertEqual(rows["b.f16.weight"]["action"], "kept")
        self.assertIn("--keep", rows["b.f16.weight"]["why"])
        self.assertEqual(rows["c.f32.weight"]["action"], "kept")
        self.assertIn("--only", rows["c.f32.weight"]["why"])
        self.assertEqual(rows["x.I64.weight"]["action"], "copied")
        row, (dtype, shape, data) = rows["a.bf16.weight"], every_dtype()["a.bf16.weight"]
        made, _ = tensors.load(self.path("out.safetensors"))
        (scale,) = struct.unpack("<f", made["a.bf16.weight_scale_inv"][2])
        values = tensors.floats(dtype, data)
        E4M3 = oracle.exact.E4M3.values
        errors = [
            x - float(E4M3[code & 127]) * (-1 if code & 128 else 1) * scale
            for x, code in zip(values, made["a.bf16.weight"][2])
        ]
        self.assertAlmostEqual(row["mse"], sum(e * e for e in errors) / len(errors), delta=row["mse"] * 1e-5)
        self.assertAlmostEqual(row["max_abs_error"], max(map(abs, errors)), delta=row["max_abs_error"] * 1e-5)
        self.assertEqual((row["blocks"], row["zero_blocks"], row["saturated"], row["nonfinite"]), (1, 0, 0, 0))
        self.assertEqual(report["totals"]["bytes_in"], sum(len(d) for _, _, d in every_dtype().values()))
        dry = self.good(CONVERT, "--json", "-", "--dry-run", source, self.path("never.safetensors"))
        self.assertEqual(len(json.loads(dry.stdout)["tensors"]), len(every_dtype()))
        self.assertFalse(self.path("never.safetensors").exists())


class Refusals(support.Case):
    def setUp(self):
        super().setUp()
        self.source = self.save("in.safetensors", {"a.weight": ("BF16", [40, 64], weights(1, "BF16", [40, 64]))})
        self.out = self.path("out.safetensors")

    def test_wrong_usage_exits_with_2(self):
        for says, arguments in (
            (["no such preset", "vllm-block", "te-mxfp8"], ["--recipe", "nonsense"]),
            ("--scale", ["--scale", "e8m0"]),
            ("no such naming", ["--naming", "x"]),
            ("--amax-floor", ["--amax-floor", "-1"]),
            ("--amax-floor", ["--amax-floor", "nan"]),
            ("--amax-floor", ["--amax-floor", "1e39"]),
            ("--amax-floor", ["--amax-floor", "1x"]),
            ("--nonfinite", ["--nonfinite", "y"]),
            ("no such layout", ["--layout", "nonsense"]),
            ("--threads", ["--threads", "0"]),
            ("--wrong", ["--wrong"]),
        ):
            self.bad(2, says, CONVERT, *arguments, self.source, self.out)
        self.bad(2, "INPUT and OUTPUT", CONVERT, self.source)
        self.bad(2, "OUTPUT is INPUT", CONVERT, "--force", self.source, self.source)
        folder = self.path("folder")
        folder.mkdir()
        self.bad(2, "lies inside", CONVERT, folder, folder / "x")
        self.bad(2, "lies inside", CONVERT, "--force", self.source, self.dir)

    def test_help_and_version(self):
        for option in ("--help", "--version"):
            outcome = self.good(CONVERT, option)
            self.assertTrue(outcome.stdout and not outcome.stderr)
        with open("/dev/full", "w", encoding="utf-8") as full:
            outcome = subprocess.run([CONVERT, "--list"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(outcome.returncode, 1)
        self.assertIn("standard output", outcome.stderr)

    def test_a_double_dash_ends_the_options(self):
        os.rename(self.source, self.path("--in.safetensors"))
        self.good(CONVERT, "--verify", "--", "--in.safetensors", "--out.safetensors", cwd=self.dir)

    def test_existing_output_needs_force(self):
        self.out.write_bytes(b"old")
        self.bad(1, ["exists", "--force"], CONVERT, self.source, self.out)
        self.assertEqual(self.out.read_bytes(), b"old")
        self.good(CONVERT, "--force", self.source, self.out)
        tensors.load(self.out)

    def test_nonfinite_weights_are_named_and_counted(self):
        values = [0.5] * 128
        values[70] = float("inf")
        values[99] = float("nan")
        source = self.save("bad.safetensors", {"layers.0.weight": ("F32", [2, 64], struct.pack("<128f", *values))})
        self.bad(1, ["layers.0.weight", "element 70 (row 1, column 6)", "2 of 128"], CONVERT, source, self.out)
        self.good(CONVERT, "--nonfinite", "tool", "--verify", "--json", self.path("r.json"), source, self.out)
        self.assertEqual(self.report(self.path("r.json"))["tensors"][0]["nonfinite"], 2)

    def test_mxfp8_wants_whole_groups(self):
        source = self.save("bad.safetensors", {"odd.weight": ("BF16", [2, 40], weights(1, "BF16", [2, 40]))})
        self.bad(1, ["odd.weight", "40", "32", "--keep"], CONVERT, "--recipe", "te-mxfp8", source, self.out)
        self.good(CONVERT, "--recipe", "te-mxfp8", "--keep", "odd*", source, self.out)

    def test_pickles_are_not_read(self):
        pickle = self.path("pytorch_model.bin")
        pickle.write_bytes(b"\x80\x02}q\x00.")
        self.bad(1, ["pickle", "convert it"], CONVERT, pickle, self.out)
        folder = self.path("folder")
        folder.mkdir()
        os.rename(pickle, folder / "pytorch_model.bin")
        self.bad(1, ["pickle", "convert it"], CONVERT, folder, self.path("out"))

    def test_a_scale_that_is_there_already_is_refused(self):
        source = self.save(
            "bad.safetensors",
            {
                "a.weight": ("BF16", [4, 32], weights(1, "BF16", [4, 32])),
                "a.weight_scale_inv": ("F32", [1, 1], bytes(4)),
            },
        )
        self.bad(1, ["a.weight_scale_inv", "twice"], CONVERT, source, self.out)

    def test_a_report_that_cannot_be_written_leaves_no_output(self):
        self.bad(1, "nowhere", CONVERT, "--json", self.path("nowhere/r.json"), self.source, self.out)

    def test_a_report_is_not_written_over_the_input(self):
        before = self.source.read_bytes()
        for more in ([], ["--dry-run"]):
            self.bad(2, ["--json", "over INPUT"], CONVERT, "--json", self.source, *more, self.source, self.out)
        self.assertEqual(self.source.read_bytes(), before)

    def test_patterns_that_match_nothing_are_named(self):
        for pattern in ("zzz", "["):
            self.bad(1, f"--only '{pattern}'", CONVERT, "--only", pattern, "--json", self.path("r"), self.source,
                     self.out, lines=2)
        told = self.good(CONVERT, "--keep", "*", self.source, self.out).stderr
        self.assertIn("no tensor becomes FP8: --keep '*' leaves none", told)
        told = self.good(CONVERT, "--keep", "zzz", "--force", self.source, self.out).stderr
        self.assertIn("--keep 'zzz': no tensor matches", told)
        self.bad(2, "value", CONVERT, "--keep=", self.source, self.out)

    def test_rules_and_layers_of_the_user(self):
        names = [f"model.layers.{layer}.{part}.weight" for layer in range(4) for part in ("mlp.up_proj", "mlp.gate")]
        source = self.save("model.safetensors",
                           {name: ("BF16", [8, 32], weights(name, "BF16", [8, 32])) for name in names})
        rules, report = self.path("rules.txt"), self.path("r.json")
        rules.write_text("# ours\nquantize **.1.mlp.gate  measured\nkeep **.2.mlp.up_proj\n", encoding="utf-8")

        def why(*options):
            self.good(CONVERT, "--force", "--verify", "--json", report, *options, source, self.out)
            rows = {row["name"]: row for row in self.report(report)["tensors"]}
            return [(rows[name]["action"], rows[name]["why"]) for name in names]

        family = [("quantized", "all-2d: matrix"), ("kept", "all-2d: router")] * 4
        self.assertEqual(why(), family)
        first, last = ("kept", "one of the first 1 layers"), ("kept", "one of the last 2 layers")
        self.assertEqual(why("--bf16-first-layers", 1)[::2], [first] + family[:6:2])
        self.assertEqual(why("--bf16-first-layers", 1, "--bf16-last-layers", 2)[::2], [first, family[0], last, last])
        ours = ("kept", f"{rules}: **.2.mlp.up_proj")
        expected = [*family[:3], ("quantized", f"{rules}: measured"), ours, *family[5:]]
        self.assertEqual(why("--rules", rules), expected)
        # The user's rules come first; a rule that quantizes wins over the layers too.
        rules.write_text("quantize **.0.mlp.up_proj\n", encoding="utf-8")
        self.assertEqual(why("--rules", rules, "--bf16-first-layers", 2)[:3:2],
                         [("quantized", f"{rules}: **.0.mlp.up_proj"), ("kept", "one of the first 2 layers")])
        rules.write_text("keep **.zzz\n", encoding="utf-8")
        told = self.good(CONVERT, "--force", "--rules", rules, source, self.out).stderr
        self.assertIn(f"--rules {rules}: no module matches '**.zzz'", told)
        rules.write_text("keep a.b\nleave c.d\n", encoding="utf-8")
        self.bad(1, [f"{rules}:2", "keep PATTERN [why]"], CONVERT, "--force", "--rules", rules, source, self.out)
        self.bad(1, "nowhere.txt", CONVERT, "--force", "--rules", self.path("nowhere.txt"), source, self.out)
        self.bad(1, ["--bf16-first-layers 3 and --bf16-last-layers 2", "4 layers"], CONVERT, "--force",
                 "--bf16-first-layers", 3, "--bf16-last-layers", 2, source, self.out)
        self.bad(1, "no tensor's name has a layer's number", CONVERT, "--force", "--bf16-last-layers", 1, self.source,
                 self.out)
        for wrong in ("-1", "x", "1.5"):
            self.bad(2, "--bf16-first-layers", CONVERT, f"--bf16-first-layers={wrong}", source, self.out)
        told = self.good(CONVERT, "--help").stdout
        for option in ("--rules", "--bf16-first-layers", "--bf16-last-layers"):
            self.assertIn(option, told)

    def test_a_folder_for_a_file_is_named(self):
        self.path("made").mkdir()
        for folder in ("made", "made/", "new/"):
            self.bad(1, folder, CONVERT, self.source, f"{self.dir}/{folder}")

    def test_an_interruption_leaves_no_temporary(self):
        self.good(MAKE, "--size", 200, "--shards", 1, self.path("in"))
        for kind in (signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen([CONVERT, self.path("in"), self.path("out")], stderr=subprocess.DEVNULL)
            while process.poll() is None and not any(name.startswith(".out") for name in os.listdir(self.dir)):
                time.sleep(0.001)
            process.send_signal(kind)
            self.assertIn(process.wait(), (-kind, 0))
            if process.returncode == 0:
                shutil.rmtree(self.path("out"))
            self.assertEqual(sorted(os.listdir(self.dir)), ["in", "in.safetensors"])

    def test_codes_do_not_get_the_name_of_another_recipe(self):
        self.good(CONVERT, self.source, self.out)
        self.bad(1, ["a.weight", "already"], CONVERT, "--recipe", "te-block", self.out, self.path("twice.safetensors"))

    def test_a_tensor_that_no_index_lists_is_not_left_out_unsaid(self):
        folder = self.path("folder")
        folder.mkdir()
        data = weights(1, "BF16", [4, 4])
        tensors.save(folder / "m.safetensors", {name: ("BF16", [4, 4], data) for name in ("a.weight", "b.weight")})
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a.weight": "m.safetensors"}}))
        told = self.good(CONVERT, folder, self.path("out")).stderr
        self.assertIn("b.weight: lies in m.safetensors and not in the index", told)

    def test_a_config_that_is_none_is_refused(self):
        folder = self.path("folder")
        folder.mkdir()
        os.rename(self.source, folder / "model.safetensors")
        for says, text in (("is empty", ""), ("no JSON object", "[]")):
            (folder / "config.json").write_text(text)
            self.bad(1, ["config.json", says], CONVERT, folder, self.path("out"))

    def test_streams_that_take_nothing(self):
        for close, expected in (("2>&-", 0), ("2>/dev/full", 0), ("<&- >&- 2>&-", 0), (">&- --json -", 1)):
            shell = f'exec "$@" {close}'
            outcome = run("sh", "-c", shell, "sh", CONVERT, "--verify", "--force", self.source, self.out)
            self.assertEqual(outcome.returncode, expected, close)
            tensors.load(self.out)

    def test_names_do_not_steer_a_terminal(self):
        names = {"a\x1b[31m\n\x7f.weight": b"\xc0\x7f", "b\u009b1m\u00e9.weight": b"\x80\x3f"}
        source = self.save("bad.safetensors", {name: ("BF16", [1, 1], data) for name, data in names.items()})
        self.bad(1, "a\\x1b[31m\\x0a\\x7f.weight: NaN", CONVERT, source, self.out)
        table = self.good(CONVERT, "--dry-run", source, self.out).stdout
        self.assertEqual(len(table.splitlines()), 2)
        self.assertIn("b\\xc2\\x9b1m\u00e9.weight", table)

    def test_limits_of_the_system(self):
        def limited(kind, limit):
            return lambda: resource.setrlimit(kind, (limit, limit))

        self.bad(1, "File too large", CONVERT, self.source, self.out, preexec_fn=limited(resource.RLIMIT_FSIZE, 1000))
        self.assertEqual(os.listdir(self.dir), [self.source.name])
        # Some of the threads start, and the others do not.
        with_few = limited(resource.RLIMIT_AS, 150 << 20)
        self.good(CONVERT, "--verify", "--threads", 1024, self.source, self.out, preexec_fn=with_few)

    def test_hostile_files_are_refused_not_crashed_on(self):
        good, source = self.source.read_bytes(), random.Random(3)
        size = struct.unpack("<Q", good[:8])[0] + 8
        files = [b"", b"\0" * 7, b"\xff" * 16, good[:-1], good + b"x", good[:size], b"\xf8" + b"\xff" * 7 + b"{}      "]
        for _ in range(150):
            mutated = bytearray(good)
            for _ in range(source.randrange(1, 4)):
                mutated[source.randrange(size)] = source.choice(b'"{}[],:019-x\\ \xff\x00')
            files.append(bytes(mutated))
        for number, data in enumerate(files):
            path = self.path("bad.safetensors")
            path.write_bytes(data)
            outcome = run(CONVERT, "--force", path, self.out)
            # Some mutations only rename the tensor or change its dtype's last letter into another one.
            self.assertIn(outcome.returncode, (0, 1), (number, outcome.stderr))
            if number < 7:
                self.assertEqual(outcome.returncode, 1, number)

    def test_too_little_disk_is_said_before_any_work(self):
        # A sparse file of 2^42 bytes that nothing has to read.
        path, extent = self.path("huge.safetensors"), 1 << 20
        header = json.dumps(
            {"x": {"dtype": "U8", "shape": [extent, extent * 4], "data_offsets": [0, extent * extent * 4]}}
        ).encode()
        header += b" " * (-len(header) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            try:
                file.truncate(8 + len(header) + extent * extent * 4)
            except OSError:
                self.skipTest("no sparse file of 4 TiB here")
        self.bad(1, ["too little free space", str(extent * extent * 4 // 10**12)], CONVERT, path, self.out)


class Folders(support.Case):
    def setUp(self):
        super().setUp()
        self.good(MAKE, "--size", 4, "--shards", 3, self.path("in"))
        (self.path("in") / "tokenizer.json").write_text("{}", encoding="utf-8")
        (self.path("in") / "extra").mkdir()
        (self.path("in") / "extra" / "note.txt").write_text("hello", encoding="utf-8")

    def test_sharding_index_and_other_files_are_kept(self):
        self.good(CONVERT, "--verify", self.path("in"), self.path("out"))
        listed = sorted(str(p.relative_to(self.path("in"))) for p in self.path("in").rglob("*"))
        self.assertEqual(sorted(str(p.relative_to(self.path("out"))) for p in self.path("out").rglob("*")), listed)
        self.assertEqual((self.path("out") / "extra" / "note.txt").read_text(encoding="utf-8"), "hello")
        index = self.report(self.path("out") / "model.safetensors.index.json")
        total, found = 0, {}
        for shard in sorted(self.path("out").glob("*.safetensors")):
            for name, (_, _, data) in tensors.load(shard)[0].items():
                found[name] = shard.name
                total += len(data)
        self.assertEqual(index["weight_map"], found)
        self.assertEqual(index["metadata"]["total_size"], total)
        config = self.report(self.path("out") / "config.json")
        self.assertEqual(config["quantization_config"]["weight_block_size"], [128, 128])
        self.assertEqual(config["model_type"], self.report(self.path("in") / "config.json")["model_type"])

    def test_a_folder_is_exchanged_whole(self):
        out = self.path("out")
        self.good(CONVERT, self.path("in"), out)
        before = (out / "model.safetensors.index.json").read_bytes()
        self.bad(1, ["exists", "--force"], CONVERT, "--recipe", "te-block", self.path("in"), out)
        self.assertEqual((out / "model.safetensors.index.json").read_bytes(), before)
        self.good(CONVERT, "--recipe", "te-block", "--force", self.path("in"), out)
        recipes = {tensors.load(shard)[1]["fp8wire.recipe"] for shard in out.glob("*.safetensors")}
        self.assertEqual(recipes, {"te-block"})

    def test_a_link_to_a_folder_is_not_left_out_unsaid(self):
        os.symlink("extra", self.path("in") / "more")
        told = self.good(CONVERT, self.path("in"), self.path("out")).stderr
        self.assertIn("more: is a link to a folder", told)

    def test_the_closing_line_has_the_loaders_arithmetic(self):
        folder = self.path("llama")
        folder.mkdir()
        content = {f"model.layers.0.self_attn.{part}_proj.weight": ("BF16", [rows, 128], bytes(2 * rows * 128))
                   for part, rows in (("q", 128), ("k", 96), ("v", 96))}
        tensors.save(folder / "model.safetensors", content)
        (folder / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
        told = self.good(CONVERT, folder, self.path("out")).stderr
        self.assertIn("vllm does not load it: model.layers.0.self_attn.k_proj.weight 96 rows is not a multiple of 128;",
                      told)

    def test_killing_leaves_the_target_whole_and_the_next_run_cleans_up(self):
        out, source = self.path("out"), random.Random(5)
        self.good(CONVERT, self.path("in"), out)
        started = time.monotonic()
        self.good(CONVERT, "--force", self.path("in"), out)
        usual = time.monotonic() - started
        expected = {recipe: self.snapshot(recipe) for recipe in ("vllm-block", "te-block")}
        for number in range(24):
            recipe = ("te-block", "vllm-block")[number % 2]
            process = subprocess.Popen(
                [CONVERT, "--force", "--recipe", recipe, self.path("in"), out],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(source.random() * usual * 1.1)
            process.send_signal(signal.SIGKILL)
            process.wait()
            self.assertIn({p.name: p.read_bytes() for p in out.glob("*.safetensors")}, expected.values())
        self.good(CONVERT, "--force", self.path("in"), out)
        self.assertEqual([name for name in os.listdir(self.dir) if name.startswith(".")], [])

    def snapshot(self, recipe):
        out = self.path("snapshot")
        self.good(CONVERT, "--force", "--recipe", recipe, self.path("in"), out)
        return {p.name: p.read_bytes() for p in out.glob("*.safetensors")}


class Memory(support.Case):
    def test_memory_does_not_grow_with_the_checkpoint(self):
        # The resident set of mapped files counts: 600 MB of tensors, the largest of 32 MB.
        self.good(MAKE, "--size", 600, "--shards", 1, self.path("in"))
        process = subprocess.Popen([CONVERT, self.path("in"), self.path("out")], stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        self.assertEqual(status, 0)
        self.assertLess(usage.ru_maxrss, 150 << 10, "KiB")


if __name__ == "__main__":
    unittest.main()
