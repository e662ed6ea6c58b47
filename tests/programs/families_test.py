#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Folders of every model family through fp8-convert and fp8-inspect: which tensors become FP8, what engines are told,
and what the layer audit finds. Usage: families_test.py FP8_CONVERT FP8_INSPECT MAKE_CHECKPOINT
"""

import json
import pathlib
import re
import shutil
import sys
import unittest

import support
import tensors
from support import CONVERT, INSPECT, run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import tiny_models  # noqa: E402

# The matrices that stay BF16, model by model, written from the trainers' and engines' lists and not from our rules.
GATED = r"|.*\.mlp\.gate\.weight"
HYBRID = (
    GATED
    + r"|.*\.(shared_expert_gate|in_proj_a|in_proj_b|in_proj_ba|conv1d)\.weight"
    + r"|mtp\.fc\.weight|model\.visual\..*"
)
LATENT = GATED + r"|.*\.(eh_proj|shared_head\.head|indexer\.weights_proj)\.weight"
ENDS = r".*embed_tokens\.weight|lm_head\.weight"
KEPT = {
    "llama": ENDS,
    "mistral": ENDS,
    "mixtral": ENDS + r"|.*\.block_sparse_moe\.gate\.weight",
    "qwen2": ENDS,
    "qwen3": ENDS,
    "qwen3_moe": ENDS + GATED,
    "qwen3_next": ENDS + HYBRID,
    "qwen3_5": ENDS + HYBRID,
    "qwen3_5_moe": ENDS + HYBRID,
    "deepseek_v2": ENDS + LATENT,
    "deepseek_v3": ENDS + LATENT,
    "deepseek_v32": ENDS + LATENT,
    "nemotron_h": r"backbone\.embeddings\.weight|lm_head\.weight|.*\.mixer\.(gate|conv1d)\.weight",
    "bert": r"embeddings\..*|pooler\.dense\.weight",
}
# What engines build as one module.
FUSED = {
    "qkv_proj": ["q_proj", "k_proj", "v_proj"],
    "gate_up_proj": ["gate_proj", "up_proj"],
    "in_proj_qkvz": ["in_proj_qkv", "in_proj_z"],
    "in_proj_ba": ["in_proj_b", "in_proj_a"],
    "fused_qkv_a_proj": ["q_a_proj", "kv_a_proj_with_mqa"],
}


def vllm_skips(module, ignored):
    """Exact names; a fused module by all of its parts, or by none."""
    path, _, last = module.rpartition(".")
    if last in FUSED and f"{path}.{FUSED[last][0]}" in PARTS:
        parts = {f"{path}.{part}" in ignored for part in FUSED[last] if f"{path}.{part}" in PARTS}
        assert len(parts) == 1, f"{module}: only a part of it is ignored"
        return parts.pop()
    if ".experts" in module:
        return any(module in one for one in ignored if ".experts" in one)
    return module in ignored


def sglang_skips(module, ignored):
    """Substrings; that is how "mlp.gate" comes to take mlp.gate_up_proj with it."""
    path, _, last = module.rpartition(".")
    if last in FUSED and f"{path}.{FUSED[last][0]}" in PARTS:
        parts = {any(one in f"{path}.{part}" for one in ignored) for part in FUSED[last] if f"{path}.{part}" in PARTS}
        assert len(parts) == 1, f"{module}: only a part of it is ignored"
        return parts.pop()
    if ".experts" in module:
        return any(module in one for one in ignored if ".experts" in one)
    return any(one in module for one in ignored)


PARTS = set()  # the modules of the model at hand


def modules_of(names):
    """The modules that an engine builds of these weights, fused ones by their own name."""
    found = set()
    for name in names:
        module = name[: -len(".weight")] if name.endswith(".weight") else name
        path, _, last = module.rpartition(".")
        if ".experts" in module and "shared" not in module:
            found.add(module[: module.index(".experts") + len(".experts")])
            continue
        whole = [fused for fused, parts in FUSED.items() if last in parts]
        found.add(f"{path}.{whole[0]}" if whole and f"{path}.{FUSED[whole[0]][1]}" in PARTS else module)
    return found


class Folder(support.Case):
    def make(self, name, **options):
        return tiny_models.write(self.path(name), name, **options)

    def everything_in(self, folder):
        found = {}
        for shard in sorted(folder.glob("*.safetensors")):
            found.update(tensors.load(shard)[0])
        return found

    def matrices(self, name, content):
        """The names of those that become FP8, and of those that stay."""
        all_ = [key for key, (_, shape, _) in content.items() if len(shape) in (2, 3)]
        kept = {key for key in all_ if re.fullmatch(KEPT[name], key)}
        return set(all_) - kept, kept


class Families(Folder):
    def check(self, name, content, preset, *more):
        out, report, seen = self.path("out"), self.path("c.json"), self.path("i.json")
        outcome = self.good(
            CONVERT, "--force", "--verify", "--json", report, *preset["options"], *more, self.path(name), out
        )
        quantized, kept = self.matrices(name, content)
        rows = {row["name"]: row for row in self.report(report)["tensors"]}
        self.assertEqual({key for key, row in rows.items() if row["action"] == "quantized"}, quantized, name)
        self.assertEqual({key for key, row in rows.items() if row["action"] == "kept"}, kept, name)
        for row in rows.values():
            self.assertTrue(row["why"], row["name"])
        made = self.everything_in(out)
        for key, tensor in content.items():
            if key not in quantized:
                self.assertEqual(made[key], tensor, key)
        self.good(INSPECT, "--json", seen, out)
        found = self.report(seen)
        self.assertEqual((found["summary"]["pairs"], found["summary"]["broken"]), (len(quantized), 0))
        could = [(one["name"], one["scale"]) for one in found["summary"]["presets"]]
        self.assertIn((preset["name"], preset["scale"]), could, name)
        self.assertEqual(found["audit"]["family"], tiny_models.MODELS[name][0])
        self.assertEqual(found["audit"]["disagreements"], [], name)
        return outcome.stderr

    def test_each_family_with_each_preset(self):
        presets, done = support.presets(), set()
        few = {("vllm-block", "fp32"), ("nemo-mxfp8", "e8m0"), ("compressed-tensors-block", "bf16")}
        rows = []
        for name, (family, _) in tiny_models.MODELS.items():
            content = self.make(name)
            # Of a family's second model, a few: its tensors have other names, and not other numbers.
            chosen = [p for p in presets if family not in done or (p["name"], p["scale"]) in few]
            done.add(family)
            for preset in chosen:
                self.check(name, content, preset)
            rows.append((name, family, len(self.matrices(name, content)[0]), len(chosen)))
        print("%-14s %-12s %8s %8s" % ("model_type", "family", "in FP8", "presets"))
        for row in rows:
            print("%-14s %-12s %8d %8d" % row)

    def test_the_original_proves_the_preset(self):
        self.make("qwen3_5_moe")
        for preset in support.presets():
            self.good(CONVERT, "--force", *preset["options"], self.path("qwen3_5_moe"), self.path("out"))
            self.good(INSPECT, "--against", self.path("qwen3_5_moe"), "--json", self.path("i.json"), self.path("out"))
            for pair in self.report(self.path("i.json"))["pairs"]:
                self.assertIn(f'{preset["name"]} {preset["scale"]}', pair["error"]["made_by"], pair["name"])

    def test_layers_in_bf16_of_each_family(self):
        for name in tiny_models.MODELS:
            content, report = self.make(name), self.path("c.json")
            layers = 4 if name == "nemotron_h" else 2
            quantized, _ = self.matrices(name, content)
            for option, left in (("--bf16-first-layers", 0), ("--bf16-last-layers", layers - 1)):
                self.good(CONVERT, "--force", "--json", report, option, 1, self.path(name), self.path("out"))
                rows = {row["name"]: row for row in self.report(report)["tensors"]}
                # Towers and drafting layers have numbers of their own.
                there = re.compile(rf"(?!mtp\.|.*visual\.).*\.layers?\.{left}\.")
                self.assertEqual({key for key, row in rows.items() if row["action"] == "quantized"},
                                 {key for key in quantized if not there.match(key)}, (name, option))
                self.assertTrue(any(there.match(key) for key in quantized), (name, option))

    def test_other_seeds_make_other_bytes_and_the_same_decisions(self):
        first = self.make("qwen3")
        shutil.rmtree(self.path("qwen3"))
        second = self.make("qwen3", seed=2, shards=1)
        self.assertNotEqual(first["model.layers.0.mlp.up_proj.weight"], second["model.layers.0.mlp.up_proj.weight"])
        vllm = next(p for p in support.presets() if p["name"] == "vllm-block")
        self.check("qwen3", second, vllm)
        self.assertEqual(
            sorted(p.name for p in self.path("out").iterdir()),
            ["config.json", "generation_config.json", "model.safetensors"],
        )


class Engines(Folder):
    """What the folder tells the engines."""

    def converted(self, name, *options):
        self.good(CONVERT, "--force", *options, self.path(name), self.path("out"))
        return self.report(self.path("out") / "config.json")

    def test_each_engine_skips_what_is_kept_and_nothing_else(self):
        # As the checkpoint spells modules, as the text model alone and as multimodal classes of the engines do.
        text, vision = "model.language_model.", "model.visual."
        spellings = [
            lambda m: m,
            lambda m: "model." + m[len(text) :] if m.startswith(text) else m,
            lambda m: "language_model.model." + m[len(text) :] if m.startswith(text) else m,
            lambda m: "visual." + m[len(vision) :] if m.startswith(vision) else m,
        ]
        for name in tiny_models.MODELS:
            quantized, kept = self.matrices(name, self.make(name))
            # Embeddings, convolutions and norms are no linear modules: engines do not ask for them.
            kept = {one for one in kept if not re.search(r"embed|conv1d|patch_embed", one)}
            for options, key, skips in (
                ([], "modules_to_not_convert", vllm_skips),
                (["--naming", "sglang"], "modules_to_not_convert", sglang_skips),
                (["--recipe", "te-mxfp8"], "ignore", vllm_skips),
                (["--naming", "compressed-tensors"], "ignore", vllm_skips),
            ):
                ignored = set(self.converted(name, *options)["quantization_config"][key])
                for spell in spellings:
                    PARTS.clear()
                    PARTS.update(spell(one.removesuffix(".weight")) for one in quantized | kept)
                    for module in modules_of(spell(one) for one in quantized):
                        self.assertFalse(skips(module, ignored), (name, options, module))
                    for module in modules_of(spell(one) for one in kept):
                        self.assertTrue(skips(module, ignored), (name, options, module))

    def test_each_dialect_has_the_keys_that_its_readers_insist_on(self):
        self.make("qwen3_moe")
        block = self.converted("qwen3_moe")["quantization_config"]
        self.assertEqual(
            {key: block[key] for key in ("quant_method", "fmt", "activation_scheme", "weight_block_size")},
            {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
        )
        self.assertNotIn("scale_fmt", block)
        pow2 = self.converted("qwen3_moe", "--recipe", "te-block", "--scale", "pow2")["quantization_config"]
        self.assertEqual(pow2["scale_fmt"], "ue8m0")
        exponents = self.converted("qwen3_moe", "--recipe", "deepgemm-block", "--scale", "e8m0")["quantization_config"]
        self.assertEqual((exponents["scale_fmt"], exponents["weight_block_size"]), ("ue8m0", [128, 128]))
        # Loaders copy values into an FP32 parameter: as U8 the exponents would become the numbers 0 to 255.
        scales = self.everything_in(self.path("out"))["model.layers.0.mlp.up_proj.weight_scale_inv"]
        self.assertEqual(scales[0], "F8_E8M0")
        self.assertFalse((self.path("out") / "hf_quant_config.json").exists())
        modelopt = self.converted("qwen3_moe", "--recipe", "te-mxfp8")["quantization_config"]
        self.assertEqual((modelopt["quant_method"], modelopt["quant_algo"]), ("modelopt", "MXFP8"))
        file = self.report(self.path("out") / "hf_quant_config.json")["quantization"]
        self.assertEqual((file["quant_algo"], file["group_size"], file["kv_cache_quant_algo"]), ("MXFP8", 32, None))
        self.assertEqual(file["exclude_modules"], modelopt["ignore"])
        native = self.converted("qwen3_moe", "--recipe", "te-mxfp8", "--naming", "sglang")["quantization_config"]
        self.assertEqual(
            [native[key] for key in ("quant_method", "activation_scheme", "weight_block_size", "scale_fmt")],
            ["mxfp8", "dynamic", [1, 32], "ue8m0"],
        )
        for recipe, form, weights in (
            ("vllm-block", "float-quantized", {"strategy": "block", "block_structure": [128, 128]}),
            ("te-mxfp8", "mxfp8-quantized", {"strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}),
        ):
            config = self.converted("qwen3_moe", "--recipe", recipe, "--naming", "compressed-tensors")
            config = config["quantization_config"]
            self.assertEqual((config["quant_method"], config["format"]), ("compressed-tensors", form))
            group = config["config_groups"]["group_0"]
            self.assertEqual(group["targets"], ["Linear"])
            self.assertLessEqual(weights.items(), group["weights"].items())
            self.assertTrue(group["input_activations"]["dynamic"])
        two = self.converted("qwen3_moe", "--recipe", "te-block", "--element", "e5m2")["quantization_config"]
        self.assertEqual(two["fmt"], "e5m2")

    def test_the_closing_line_says_how_to_serve_or_why_not(self):
        self.make("qwen3", sizes=tiny_models.WHOLE)
        folder, out = self.path("qwen3"), self.path("out")
        for options, says in (
            ([], f"serve it: vllm serve {out}"),
            (["--naming", "sglang"], f"serve it: python3 -m sglang.launch_server --model-path {out}"),
            (["--recipe", "te-mxfp8"], f"serve it: vllm serve {out} (MXFP8 wants a GPU of SM100 or later)"),
            (["--recipe", "nemo-mxfp8"], "--naming modelopt"),
            (["--naming", "modelopt"], "--naming vllm"),
            (["--recipe", "te-block", "--element", "e5m2"], "no engine serves it: all of them want E4M3"),
            (
                ["--recipe", "te-block", "--block", "1x128"],
                "no engine serves it: none takes weights in blocks of 1x128",
            ),
            (["--recipe", "te-mxfp8", "--block", "32x1"], "no engine serves it: none takes weights in blocks of 32x1"),
            (["--recipe", "te-mxfp8", "--layout", "cublas-128x4"], "no loader of checkpoints expects"),
        ):
            outcome = self.good(CONVERT, "--force", *options, folder, out)
            lines = outcome.stderr.strip().splitlines()
            self.assertEqual(len(lines), 1, outcome.stderr)
            self.assertIn(says, lines[0])


class Audit(Folder):
    """A disagreement planted into a converted folder is found, whichever side it is on."""

    def setUp(self):
        super().setUp()
        self.content = self.make("qwen3_moe", shards=1)
        self.good(CONVERT, self.path("qwen3_moe"), self.path("out"))
        self.file, self.config = self.path("out") / "model.safetensors", self.path("out") / "config.json"

    def change(self, change):
        made, metadata = tensors.load(self.file)
        change(made)
        tensors.save(self.file, made, metadata)

    def ignore(self, *modules):
        config = self.report(self.config)
        config["quantization_config"]["modules_to_not_convert"] += modules
        self.config.write_text(json.dumps(config), encoding="utf-8")

    def found(self, code=1):
        outcome = run(INSPECT, "--json", self.path("i.json"), self.path("out"))
        self.assertEqual(outcome.returncode, code, outcome.stdout + outcome.stderr)
        audit = self.report(self.path("i.json"))["audit"]
        for one in audit["disagreements"]:
            self.assertIn(f'C1 {one["name"]}: {one["what"]}', outcome.stdout)
        return [(one["name"], one["what"]) for one in audit["disagreements"]]

    def back_to_bf16(self, *names):
        def change(made):
            for name in names:
                made[name] = self.content[name]
                del made[name[: -len(".weight")] + ".weight_scale_inv"]

        self.change(change)

    def test_a_sound_folder_has_none(self):
        self.assertEqual(self.found(0), [])
        # Left out on purpose, and told to the engine: no disagreement.
        self.good(CONVERT, "--force", "--keep", "*.o_proj.weight", self.path("qwen3_moe"), self.path("out"))
        self.assertEqual(self.found(0), [])

    def test_bf16_where_the_engine_builds_fp8(self):
        self.back_to_bf16("model.layers.0.self_attn.o_proj.weight")
        self.assertEqual(
            self.found(),
            [
                (
                    "model.layers.0.self_attn.o_proj.weight",
                    "is FP8 in the rules of qwen3-moe and config.json and not in the tensors",
                )
            ],
        )

    def test_fp8_where_the_engine_builds_bf16(self):
        self.ignore("model.layers.1.mlp.experts.2.down_proj")
        self.assertEqual(
            self.found(),
            [
                (
                    "model.layers.1.mlp.experts.2.down_proj.weight",
                    "is FP8 in the rules of qwen3-moe and the tensors and not in config.json",
                )
            ],
        )

    def test_a_router_in_fp8(self):
        def change(made):
            made["model.layers.1.mlp.gate.weight"] = ("F8_E4M3", [4, 160], bytes(640))
            made["model.layers.1.mlp.gate.weight_scale_inv"] = ("F32", [1, 2], bytes(8))

        self.change(change)
        self.assertEqual(
            self.found(),
            [
                (
                    "model.layers.1.mlp.gate.weight",
                    "is FP8 in the tensors and not in the rules of qwen3-moe and config.json",
                )
            ],
        )

    def test_a_part_of_a_fused_parameter(self):
        self.back_to_bf16("model.layers.0.self_attn.k_proj.weight")
        self.assertEqual(
            self.found(),
            [("model.layers.0.self_attn.qkv_proj.weight", "its parts differ in the tensors; those in FP8")],
        )
        shutil.rmtree(self.path("out"))
        self.good(CONVERT, self.path("qwen3_moe"), self.path("out"))
        self.ignore("model.layers.0.mlp.up_proj")
        self.assertEqual(
            [(name, what) for name, what in self.found()],
            [("model.layers.0.mlp.gate_up_proj.weight", "its parts differ in config.json; those in FP8")],
        )

    def test_the_ways_in_which_other_writers_spell_their_lists(self):
        self.back_to_bf16("model.layers.0.self_attn.o_proj.weight", "model.layers.1.self_attn.o_proj.weight")
        config = self.report(self.config)
        for entry in ("re:.*o_proj$", "*.o_proj", "model.layers.*.self_attn.o_proj"):
            for method in ("fp8", "compressed-tensors"):
                quantization = (
                    {
                        "quant_method": "fp8",
                        "activation_scheme": "dynamic",
                        "weight_block_size": [128, 128],
                        "ignored_layers": [entry],
                    }
                    if method == "fp8"
                    else {
                        "quant_method": method,
                        "format": "float-quantized",
                        "ignore": [entry],
                        "config_groups": {
                            "group_0": {
                                "targets": ["Linear"],
                                "weights": {
                                    "type": "float",
                                    "num_bits": 8,
                                    "strategy": "block",
                                    "block_structure": [128, 128],
                                },
                            }
                        },
                    }
                )
                config["quantization_config"] = quantization
                self.config.write_text(json.dumps(config), encoding="utf-8")
                self.assertEqual(self.found(0), [], (entry, method))

    def test_it_says_why_there_is_none(self):
        self.good(CONVERT, self.path("qwen3_moe") / "model.safetensors", self.path("bare.safetensors"))
        self.assertIn(
            "no layer audit: there is no config.json", self.good(INSPECT, self.path("bare.safetensors")).stdout
        )
        config = self.report(self.config)
        config["model_type"] = "something"
        self.config.write_text(json.dumps(config), encoding="utf-8")
        self.assertIn("no rules are known for model_type something", self.good(INSPECT, self.path("out")).stdout)
        self.assertIn("no layer audit: --tensor", self.good(INSPECT, "--tensor", "*.0.*", self.path("out")).stdout)


class Newcomers(Folder):
    def test_an_unknown_model_type_lists_the_known_ones(self):
        self.make("qwen3")
        config = self.report(self.path("qwen3") / "config.json")
        config["model_type"] = "qwen9"
        (self.path("qwen3") / "config.json").write_text(json.dumps(config), encoding="utf-8")
        self.bad(1, ["qwen9", "--model", *tiny_models.MODELS], CONVERT, self.path("qwen3"), self.path("out"))
        self.good(CONVERT, "--model", "qwen3", self.path("qwen3"), self.path("out"))
        self.bad(
            2,
            ["nonsense", "all-2d", "nemotron-h"],
            CONVERT,
            "--force",
            "--model",
            "nonsense",
            self.path("qwen3"),
            self.path("out"),
        )

    def test_a_bare_file_is_converted_by_all_2d(self):
        content = self.make("qwen3_5_moe", shards=1)
        outcome = self.good(
            CONVERT,
            "--json",
            self.path("c.json"),
            self.path("qwen3_5_moe") / "model.safetensors",
            self.path("out.safetensors"),
        )
        self.assertIn("give that folder as INPUT", outcome.stderr)
        report = self.report(self.path("c.json"))
        self.assertEqual(report["model"], "all-2d")
        rows = {row["name"]: row for row in report["tensors"]}
        for name, why in (
            ("model.language_model.embed_tokens.weight", "embedding"),
            ("model.visual.pos_embed.weight", "embedding"),
            ("lm_head.weight", "output head"),
            ("model.language_model.layers.0.mlp.gate.weight", "router"),
            ("model.language_model.layers.0.mlp.shared_expert_gate.weight", "router"),
        ):
            self.assertEqual(rows[name]["action"], "kept", name)
            self.assertIn(why, rows[name]["why"])
        # Everything else of two or three dimensions that is named *.weight, also what a family's rules would keep.
        for name, (_, shape, _) in content.items():
            if name.endswith(".weight") and len(shape) in (2, 3) and not re.search(r"embed|lm_head|gate\.w", name):
                self.assertEqual(rows[name]["action"], "quantized", name)

    def test_a_folder_without_a_config_is_a_bare_file_too(self):
        self.make("qwen3")
        (self.path("qwen3") / "config.json").unlink()
        outcome = self.good(CONVERT, "--json", self.path("c.json"), self.path("qwen3"), self.path("out"))
        self.assertIn("config.json", outcome.stderr)
        self.assertEqual(self.report(self.path("c.json"))["model"], "all-2d")

    def test_what_was_quantized_before_is_refused(self):
        self.make("qwen3")
        self.good(CONVERT, self.path("qwen3"), self.path("once"))
        self.bad(1, ["quantized already", "fp8"], CONVERT, self.path("once"), self.path("twice"))

    def test_a_fused_parameter_is_kept_whole_or_not_at_all(self):
        self.make("qwen3")
        self.bad(
            1,
            ["qkv_proj", "k_proj"],
            CONVERT,
            "--keep",
            "*.0.self_attn.k_proj.weight",
            self.path("qwen3"),
            self.path("out"),
        )
        self.good(CONVERT, "--keep", "*.0.self_attn.[qkv]_proj.weight", self.path("qwen3"), self.path("out"))

    def test_mxfp8_names_what_has_no_whole_groups(self):
        self.make("qwen3_5")
        self.bad(
            1,
            ["conv1d", "32", "--keep"],
            CONVERT,
            "--model",
            "all-2d",
            "--recipe",
            "te-mxfp8",
            self.path("qwen3_5"),
            self.path("out"),
        )
        self.good(
            CONVERT,
            "--model",
            "all-2d",
            "--recipe",
            "te-mxfp8",
            "--keep",
            "model.visual.*",
            "--keep",
            "*conv1d*",
            self.path("qwen3_5"),
            self.path("out"),
        )


if __name__ == "__main__":
    unittest.main()
