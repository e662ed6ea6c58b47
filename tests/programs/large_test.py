#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that are large or odd: a hundred shards, tensors above 4 GiB, tied weights, names in other scripts,
dtypes that pass through. Usage: large_test.py FP8_CONVERT FP8_INSPECT MAKE_CHECKPOINT
"""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import unittest

import support
import oracle
import tensors
from support import CONVERT, INSPECT

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import tiny_models  # noqa: E402

MIB = 1 << 20
# What passes through whatever its rank and name, and names that are not ASCII, or hard to tell from one another.
ODD = {
    "model.layers.0.f64.weight": ("F64", [5, 32]),
    "model.layers.0.i64.weight": ("I64", [3, 32]),
    "model.layers.0.mask.weight": ("BOOL", [7, 33]),
    "model.position_ids": ("I64", [1, 64]),
    "model.层.0.注意力.q_proj.weight": ("BF16", [33, 64]),
    "model.Größe.weight": ("BF16", [2, 32]),
    "model.e\u0301.weight": ("BF16", [2, 32]),
    "model.\u00e9.weight": ("BF16", [2, 32]),
    "🙂": ("BF16", [3]),
    "model.scalar": ("F32", []),
    "model.nothing.weight": ("BF16", [0, 64]),
}


class Odd(support.Case):
    def everything_in(self, folder):
        found = {}
        for shard in sorted(folder.glob("*.safetensors")):
            found.update(tensors.load(shard)[0])
        return found

    def test_a_hundred_shards(self):
        content = tiny_models.write(
            self.path("in"),
            "deepseek_v32",
            shards=100,
            extra={**ODD, **{f"model.extra.{number}": ("BF16", [number]) for number in range(20)}},
        )
        self.assertEqual(len(list(self.path("in").glob("*.safetensors"))), 100)
        self.good(CONVERT, "--verify", "--json", self.path("c.json"), self.path("in"), self.path("out"))
        rows = {row["name"]: row for row in self.report(self.path("c.json"))["tensors"]}
        self.assertEqual(set(rows), set(content))
        index = self.report(self.path("out") / "model.safetensors.index.json")
        made = self.everything_in(self.path("out"))
        self.assertEqual(set(index["weight_map"]), set(made))
        self.assertEqual(index["metadata"]["total_size"], sum(len(data) for _, _, data in made.values()))
        self.assertEqual(set(index["weight_map"].values()), {p.name for p in self.path("in").glob("*.safetensors")})
        for name, file in index["weight_map"].items():
            if name in content:  # every tensor stays in its shard, and its scales go with it
                was = self.report(self.path("in") / "model.safetensors.index.json")["weight_map"][name]
                self.assertEqual(file, was, name)
        for name, tensor in content.items():
            if rows[name]["action"] != "quantized":
                self.assertEqual(made[name], tensor, name)
        for name in ODD:
            self.assertNotEqual(rows[name]["action"], "quantized", name)
            self.assertTrue(rows[name]["why"], name)
        self.good(INSPECT, "--against", self.path("in"), self.path("out"))

    def test_names_and_dtypes_of_a_bare_file(self):
        content = {
            name: (dtype, shape, tiny_models.content(3, name, dtype, shape)) for name, (dtype, shape) in ODD.items()
        }
        self.good(CONVERT, "--verify", self.save("in.safetensors", content), self.path("out.safetensors"))
        made, _ = tensors.load(self.path("out.safetensors"))
        vllm = next(p for p in support.presets() if p["name"] == "vllm-block")
        for name, (dtype, shape, data) in content.items():
            if dtype == "BF16" and len(shape) == 2:
                codes, scales = oracle.quantize(vllm, dtype, shape, data)
                self.assertEqual(made[name], ("F8_E4M3", shape, codes), name)
                self.assertEqual(made[name[: -len("weight")] + "weight_scale_inv"][2], scales, name)
            else:
                self.assertEqual(made[name], (dtype, shape, data), name)
        self.good(INSPECT, "--json", self.path("i.json"), self.path("out.safetensors"))
        self.assertIn("model.层.0.注意力.q_proj.weight", [p["name"] for p in self.report(self.path("i.json"))["pairs"]])

    def test_tied_weights(self):
        # Once, as most writers leave it: the head is the embedding. Twice, as others do: two tensors of the same bytes.
        for head in (False, True):
            shutil.rmtree(self.path("in"), ignore_errors=True)
            content = tiny_models.write(self.path("in"), "qwen3")
            if head:
                shard = sorted(self.path("in").glob("*.safetensors"))[-1]
                inside = tensors.load(shard)[0]
                inside["lm_head.weight"] = content["model.embed_tokens.weight"]
                tensors.save(shard, inside)
                index = self.report(self.path("in") / "model.safetensors.index.json")
                index["weight_map"]["lm_head.weight"] = shard.name
                (self.path("in") / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
            self.good(CONVERT, "--force", "--verify", self.path("in"), self.path("out"))
            made = self.everything_in(self.path("out"))
            self.assertEqual(made["model.embed_tokens.weight"], content["model.embed_tokens.weight"])
            self.assertEqual("lm_head.weight" in made, head)
            if head:
                self.assertEqual(made["lm_head.weight"], made["model.embed_tokens.weight"])
            self.good(INSPECT, self.path("out"))

    def test_storage_that_two_tensors_share_is_refused_by_name(self):
        # The format has no views: offsets that overlap are no way to say "the same weight".
        data = support.weights(1, "BF16", [4, 32])
        raw = bytearray(tensors.dump({"a.weight": ("BF16", [4, 32], data), "b.weight": ("BF16", [4, 32], data)}))
        (size,) = struct.unpack("<Q", raw[:8])
        header = json.loads(raw[8 : 8 + size])
        header["b.weight"]["data_offsets"] = header["a.weight"]["data_offsets"]
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self.path("shared.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
        self.bad(1, ["b.weight"], CONVERT, self.path("shared.safetensors"), self.path("out.safetensors"))


class Large(support.Case):
    """Tensors of more than 2^32 bytes. The input is sparse; the output takes 3.3 GB of disk."""

    NEEDS = 5 * 10**9

    def test_more_than_four_gib(self):
        if shutil.disk_usage(self.dir).free < self.NEEDS:
            self.skipTest(f"{self.NEEDS} bytes of disk are needed, and fewer are free in {self.dir}")
        rows, cols = 65536 + 128, 32768 + 128  # 4.03 GiB of BF16
        kept = 1024 * MIB
        header = {
            "model.kept": {"dtype": "U8", "shape": [kept], "data_offsets": [0, kept]},
            "model.large.weight": {
                "dtype": "BF16",
                "shape": [rows, cols],
                "data_offsets": [kept, kept + 2 * rows * cols],
            },
        }
        self.assertGreater(2 * rows * cols, 1 << 32)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        begin = 8 + len(text)
        # A weight in the first block, one past 2^32 bytes, and the last.
        spots = {(0, 1): 0.5, (rows - 200, 77): -448.0, (rows - 1, cols - 1): 1.0}
        with open(self.path("in.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for (row, col), value in spots.items():
                file.seek(begin + kept + 2 * (row * cols + col))
                file.write(tensors.bf16([value]))
            file.seek(begin + kept - 1)
            file.write(b"\x7e")
            file.truncate(begin + kept + 2 * rows * cols)
        process = subprocess.Popen(
            [CONVERT, self.path("in.safetensors"), self.path("out.safetensors")], stderr=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        self.assertEqual(status, 0)
        bound = 1024 * MIB + 2 * 2 * rows * cols
        self.assertLess(usage.ru_maxrss << 10, bound)
        print(f"largest tensor {2 * rows * cols} bytes, resident at most {usage.ru_maxrss << 10}, allowed {bound}")
        with open(self.path("out.safetensors"), "rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            made = json.loads(file.read(size))

            def at(name, place, count):
                file.seek(8 + size + made[name]["data_offsets"][0] + place)
                return file.read(count)

            blocks = (cols + 127) // 128
            self.assertEqual(made["model.large.weight_scale_inv"]["shape"], [(rows + 127) // 128, blocks])
            for (row, col), value in spots.items():
                (scale,) = struct.unpack(
                    "<f", at("model.large.weight_scale_inv", 4 * (row // 128 * blocks + col // 128), 4)
                )
                self.assertEqual(scale, struct.unpack("<f", struct.pack("<f", abs(value) / 448))[0])
                # The largest of its block: 448, with its sign, and zeros around it.
                codes = at("model.large.weight", row * cols + col - 1, 3)
                self.assertEqual(codes[1], 0x7E | (0x80 if value < 0 else 0))
                self.assertEqual(codes[0], 0)
            self.assertEqual(at("model.kept", kept - 1, 1), b"\x7e")
            self.assertEqual(at("model.kept", kept // 2, 64), bytes(64))
        self.assertEqual(
            os.path.getsize(self.path("out.safetensors")),
            8 + size + kept + rows * cols + 4 * (rows // 128 + (rows % 128 > 0)) * blocks,
        )


if __name__ == "__main__":
    unittest.main()
