#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fp8-inspect as people run it. Usage: inspect_test.py FP8_CONVERT FP8_INSPECT MAKE_CHECKPOINT"""

import json
import re
import struct
import unittest

import support
import tensors
from support import CONVERT, INSPECT, run, weights


class Inspect(support.Case):
    def setUp(self):
        super().setUp()
        self.original = {
            "layers.0.up.weight": ("BF16", [260, 320], weights(1, "BF16", [260, 320])),
            "layers.1.up.weight": ("BF16", [300, 256], weights(2, "BF16", [300, 256])),
            "layers.1.experts.weight": ("BF16", [3, 128, 64], weights(3, "BF16", [3, 128, 64])),
            "layers.1.bias": ("BF16", [300], weights(4, "BF16", [300])),
        }
        self.source = self.save("original.safetensors", self.original)
        self.out = self.path("fp8.safetensors")

    def convert(self, *options, out=None):
        self.good(CONVERT, "--force", *options, self.source, out or self.out)
        return tensors.load(out or self.out)[0]

    def inspect(self, *arguments, code=0):
        outcome = run(INSPECT, "--json", self.path("i.json"), *arguments)
        self.assertEqual(outcome.returncode, code, outcome.stdout + outcome.stderr)
        return self.report(self.path("i.json")), outcome.stdout

    def test_it_finds_the_preset_that_made_a_checkpoint(self):
        for preset in support.presets():
            self.convert(*preset["options"])
            report, _ = self.inspect("--against", self.source, self.out)
            self.assertEqual((report["summary"]["pairs"], report["summary"]["broken"]), (3, 0))
            could = [(p["name"], p["scale"]) for p in report["summary"]["presets"]]
            self.assertIn((preset["name"], preset["scale"]), could)
            for pair in report["pairs"]:
                self.assertIn(f'{preset["name"]} {preset["scale"]}', pair["error"]["made_by"], pair["name"])
                self.assertEqual(pair["block"], preset["block"])
                self.assertEqual(
                    pair["encoding"],
                    {"e8m0": "E8M0", "pow2": "FP32 power of two", "bf16": "BF16", "fp32": "FP32"}[preset["scale"]],
                )

    def test_grids_that_differ_are_told_apart(self):
        for recipe, others in (
            ("vllm-block", ("te-block", "triton-block", "nemo-block")),
            ("te-block", ("vllm-block", "triton-block")),
            ("te-mxfp8", ("ocp-mxfp8", "torchao-mxfp8-floor", "nemo-mxfp8")),
            ("nemo-mxfp8", ("te-mxfp8", "ocp-mxfp8")),
        ):
            self.convert("--recipe", recipe)
            could = {p["name"] for p in self.inspect(self.out)[0]["summary"]["presets"]}
            self.assertIn(recipe, could)
            self.assertFalse(could & set(others), (recipe, could))

    def test_names_do_not_decide_the_encoding(self):
        # The same suffix for three encodings.
        for options, encoding in (
            (["--naming", "vllm"], "FP32"),
            (["--recipe", "te-block", "--scale", "pow2"], "FP32 power of two"),
            (["--recipe", "te-mxfp8", "--naming", "sglang"], "E8M0"),
        ):
            made = self.convert(*options)
            self.assertIn("layers.0.up.weight_scale_inv", made)
            self.assertEqual({p["encoding"] for p in self.inspect(self.out)[0]["pairs"]}, {encoding})

    def test_broken_pairs_exit_with_1(self):
        made = self.convert()
        scale = "layers.1.up.weight_scale_inv"
        dtype, shape, data = made[scale]
        one = lambda value: struct.pack("<f", value) + data[4:]
        for change, says in (
            ({scale: None}, "codes without scales"),
            ({"layers.1.up.weight": None}, "scales without codes"),
            ({"layers.1.up.weight": self.original["layers.1.up.weight"]}, "scales beside a weight in BF16"),
            ({scale: (dtype, [2, 3], data)}, "fit no way"),
            ({scale: (dtype, shape, one(float("nan")))}, "1 NaN"),
            ({scale: (dtype, shape, one(float("inf")))}, "1 Inf"),
            ({scale: (dtype, shape, one(-1.0))}, "1 negative"),
            ({scale: (dtype, shape, one(0.0))}, "1 zero"),
        ):
            broken = {name: tensor for name, tensor in {**made, **change}.items() if tensor is not None}
            report, text = self.inspect(self.save("broken.safetensors", broken), code=1)
            self.assertEqual(report["summary"]["broken"], 1)
            self.assertIn(says, text)
        made = self.convert("--recipe", "te-mxfp8")
        dtype, shape, data = made["layers.1.up.weight_scale"]
        made["layers.1.up.weight_scale"] = (dtype, shape, b"\xff" + data[1:])
        self.assertIn("1 NaN", self.inspect(self.save("broken.safetensors", made), code=1)[1])

    def test_two_checkpoints(self):
        made = self.convert()
        self.assertTrue(self.inspect(self.out, self.out)[0]["equal"])
        other = self.path("other.safetensors")
        self.convert("--recipe", "te-block", out=other)
        report, text = self.inspect(self.out, other, code=1)
        self.assertIn("different grids", text)
        name = "layers.0.up.weight"
        dtype, shape, data = made[name]
        made[name] = (dtype, shape, data[:7] + bytes([data[7] ^ 1]) + data[8:])
        del made["layers.1.bias"]
        report, text = self.inspect(self.out, self.save("changed.safetensors", made), code=1)
        self.assertEqual([(d["name"], d["differ"], d["first"]) for d in report["differences"]], [(name, 1, 7)])
        self.assertEqual(report["only_in_a"], ["layers.1.bias"])

    def test_layouts_that_differ_are_said(self):
        source = self.save("s.safetensors", {"a.weight": ("BF16", [256, 512], weights(1, "BF16", [256, 512]))})
        plain, laid = self.path("plain.safetensors"), self.path("laid.safetensors")
        self.good(CONVERT, source, plain)
        self.good(CONVERT, "--layout", "cutlass-mn", source, laid)
        said = run(INSPECT, laid, plain)
        self.assertEqual(said.returncode, 1)
        self.assertIn("different layouts, compared as they are stored: cutlass-mn and canonical", said.stdout)
        self.assertNotIn("layout", self.good(INSPECT, plain, plain).stdout)

    def test_errors_against_the_original(self):
        made = self.convert()
        report, _ = self.inspect("--against", self.source, "--tensor", "*.0.*", self.out)
        self.assertEqual([pair["name"] for pair in report["pairs"]], ["layers.0.up.weight"])
        import oracle

        dtype, shape, data = self.original["layers.0.up.weight"]
        scales = struct.unpack("<9f", made["layers.0.up.weight_scale_inv"][2])
        values, codes, blocks = tensors.floats(dtype, data), made["layers.0.up.weight"][2], {}
        for i, (x, code) in enumerate(zip(values, codes)):
            block = (i // 320 // 128, i % 320 // 128)
            y = (
                float(oracle.exact.E4M3.values[code & 127])
                * (-1 if code & 128 else 1)
                * scales[block[0] * 3 + block[1]]
            )
            signal, noise = blocks.get(block, (0.0, 0.0))
            blocks[block] = signal + x * x, noise + (x - y) ** 2
        error = report["pairs"][0]["error"]
        worst = min(blocks, key=lambda block: blocks[block][0] / blocks[block][1])
        self.assertEqual((error["worst"][0]["block_row"], error["worst"][0]["block_col"]), worst)
        noise = sum(noise for _, noise in blocks.values())
        self.assertAlmostEqual(error["mse"], noise / len(values), delta=error["mse"] * 1e-5)
        self.assertEqual(report["summary"]["error"]["mse"], error["mse"])

    def test_the_page_holds_the_report(self):
        self.convert()
        self.inspect("--against", self.source, "--html", self.path("i.html"), self.out)
        page = self.path("i.html").read_text(encoding="utf-8")
        inside = re.search(r'<script type="application/json" id="report">(.*?)</script>', page, re.DOTALL)[1]
        self.assertEqual(json.loads(inside), self.report(self.path("i.json")))
        self.assertFalse(re.findall(r'(?:src|href)="(?!data:)', page))
        self.assertEqual(set(re.findall(r"https?://[^\"' ]+", page)), {"http://www.w3.org/2000/svg"})
        # A name that tries to leave its element.
        self.source = self.save(
            "evil.safetensors", {"</script><script>alert(1)</script>.weight": self.original["layers.0.up.weight"]}
        )
        self.convert()
        self.inspect("--html", self.path("i.html"), self.out)
        self.assertNotIn("alert(1)</script>", self.path("i.html").read_text(encoding="utf-8"))

    def test_padded_lengths_by_each_tool(self):
        # Worked out by hand from the tools' sources.
        expected = {
            "skyrl,mxfp8,2,1": ([128, 64, 0, 64], 256),
            "skyrl,blockwise,2,2": ([512, 512, 0, 512], 1536),
            "skyrl,mxfp8,1,1": ([128, 64, 0, 32], 224),
            "skyrl-unpacked,blockwise,1,4": ([112, 48, 0, 16], 176),
            "skyrl-main,blockwise,2,2": ([128, 64, 0, 32], 224),
            "skyrl-main-unpacked,mxfp8,6,3": ([144, 48, 0, 48], 240),
            "verl,blockwise,2,2": ([112, 48, 0, 16], 1024),
            "verl-batched,blockwise,2,1": ([128, 64, 0, 64], 256),
            "nemo,blockwise,2,2": ([104, 40, 0, 8], 1024),
            "nemo,mxfp8,1,1": ([100, 40, 0, 1], 160),
        }
        for rule, (padded, total) in expected.items():
            with self.subTest(rule=rule):
                told = json.loads(self.good(INSPECT, "--json", "-", "--align", rule, 100, 40, 0, 1).stdout)
                self.assertEqual([row["padded"] for row in told["sequences"]], padded)
                self.assertEqual(told["total"], total)
                text = self.good(INSPECT, "--align", rule, 100, 40, 0, 1).stdout
                self.assertEqual(int(text.splitlines()[-1].split()[-1]), total)

    def test_a_configuration_and_all_that_it_breaks(self):
        def check(content, code):
            self.path("run.json").write_text(content if isinstance(content, str) else json.dumps(content))
            outcome = run(INSPECT, "--check-config", self.path("run.json"))
            self.assertEqual(outcome.returncode, code, outcome.stdout + outcome.stderr)
            return outcome

        good = {
            "arch": "sm90",
            "policy": {"fp8_recipe": "blockwise", "scale": "fp32", "fp8_param": True, "fp8_param_gather": True},
            "sync": {"mode": "blockwise"},
            "environment": {"NVTE_FP8_BLOCK_SCALING_FP32_SCALES": "1", "VLLM_USE_DEEP_GEMM_E8M0": 0,
                            "NVTE_FP8_BLOCK_AMAX_EPSILON": "1e-10"},
        }
        said = check(good, 0).stdout
        self.assertIn("no violation", said)
        for variable in ("NVTE_FP8_BLOCK_SCALING_FP32_SCALES=1", "VLLM_USE_DEEP_GEMM_E8M0=0", "EPSILON=1e-10"):
            self.assertIn(variable, said)
        for empty in ({}, {"policy": None}, {"reference": {}}, {"policy": {}, "engine": {}}):
            check(empty, 0)
        wrong = json.loads(json.dumps(good))
        wrong["policy"] |= {"fp8_param_gather": False, "lora": "adapter-only", "fp8_parm": True}
        wrong["reference"] = {"fp8_recipe": "mxfp8", "fp8_param": True, "scale": "e4m3"}
        wrong["engine"] = {"fake_quant": True}
        wrong["sync"]["prequantize"] = "yes"
        wrong["environment"] |= {"VLLM_USE_DEEP_GEMM_E8M0": "true", "NVTE_FP8_BLOCK_AMAX_EPSILON": "-1e-3"}
        outcome = check(wrong, 1)
        lines = outcome.stdout.splitlines()
        for path in ("policy.fp8_parm: no such option", "policy.fp8_param_gather: ", "policy.lora: ",
                     "reference.scale: must be one of", "reference.fp8_recipe: ", "reference.fp8_param: ",
                     "engine.fake_quant: ", "sync.prequantize: must be true or false",
                     "VLLM_USE_DEEP_GEMM_E8M0: must be '0' or '1': 'true'",
                     "NVTE_FP8_BLOCK_AMAX_EPSILON: is negative: '-1e-3'"):
            self.assertEqual(sum(line.startswith(path) for line in lines), 1, (path, lines))
        self.assertIn(f"{len(lines)} violations", outcome.stderr)
        self.assertTrue(any("set policy.fp8_param_gather=true" in line for line in lines))
        told = run(INSPECT, "--json", "-", "--check-config", self.path("run.json"))
        self.assertEqual([row["path"] for row in json.loads(told.stdout)["violations"]],
                         [line.split(":")[0] for line in lines])
        for broken in ("[]", "{", '{"policy": 1}', '{"arch": "hopper"}', '{"arch": -90}', '{"arch": 9e9}'):
            check(broken, 1)
        self.bad(1, "nothing.json", INSPECT, "--check-config", self.path("nothing.json"))

    def test_reports_are_not_written_over_inputs_or_each_other(self):
        data = weights(1, "BF16", [4, 32])
        a, b = (self.save(f"{name}.safetensors", {"a.weight": ("BF16", [4, 32], data)}) for name in "ab")
        before = a.read_bytes()
        for option in ("--json", "--html"):
            self.bad(2, [option, "over INPUT"], INSPECT, option, a, a)
            self.bad(2, [option, "over INPUT"], INSPECT, option, b, a, b)
            self.bad(2, [option, "over INPUT"], INSPECT, option, b, "--against", b, a)
        self.bad(2, "one place for two", INSPECT, "--json", "-", "--html", "-", a)
        self.assertEqual(a.read_bytes(), before)
        self.assertEqual(b.read_bytes(), before)

    def test_what_compares_nothing_is_refused(self):
        data = weights(1, "BF16", [4, 32])
        source = self.save("in.safetensors", {"a\x1b.weight": ("BF16", [4, 32], data)})
        other = self.save("other.safetensors", {"b.weight": ("BF16", [4, 32], data)})
        out = self.path("out.safetensors")
        self.good(CONVERT, source, out)
        self.bad(1, "--tensor 'zzz'", INSPECT, "--tensor", "zzz", out)
        self.bad(1, "--tensor 'zzz'", INSPECT, "--tensor", "zzz", out, out)
        self.bad(1, ["--against", "no such tensor"], INSPECT, "--against", other, out)
        self.bad(1, ["--against", "no codes"], INSPECT, "--against", other, source)
        self.assertIn("a\\x1b.weight", self.good(INSPECT, "--against", source, out).stdout)

    def test_wrong_usage(self):
        self.bad(2, "required", INSPECT)
        self.bad(1, "nothing.safetensors", INSPECT, self.path("nothing.safetensors"))
        self.bad(2, ["te", "skyrl, skyrl-unpacked"], INSPECT, "--align", "te,mxfp8,2,1", "100")
        self.bad(2, "tensorwise", INSPECT, "--align", "verl,fp4,2,1", "100")
        self.bad(2, "TOOL,RECIPE,TP,CP", INSPECT, "--align", "verl,mxfp8,2", "100")
        for wrong in ("verl,mxfp8,0,1", "verl,mxfp8,2,x", "verl,mxfp8,2,99999999999"):
            self.bad(2, "is no number in 1 .. 65536", INSPECT, "--align", wrong, "100")
        for wrong in ("-1", "1.5", "9" * 30):
            self.bad(2, "", INSPECT, "--align=verl,mxfp8,2,1", wrong)
        self.bad(2, "lengths are wanted", INSPECT, "--align", "verl,mxfp8,2,1")


if __name__ == "__main__":
    unittest.main()
