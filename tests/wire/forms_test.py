#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Readers of other frameworks' wire forms, written from their rules, against what the library packs.

Usage: forms_test.py RECORD_FORMS [--torch FOLDER]. With --torch the flattened buckets are read by torch itself, from a
virtual environment in FOLDER that PyPI fills once; exit 77 where PyPI cannot be reached.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import peer_environment  # noqa: E402

ITEM = {"torch.uint8": 1, "torch.bool": 1, "torch.float8_e4m3fn": 1, "torch.bfloat16": 2, "torch.float32": 4,
        "torch.int64": 8}


def size(dtype, shape):
    total = ITEM[dtype]
    for extent in shape:
        total *= extent
    return total


def view(raw, dtype, begin, end):
    """A typed view as torch makes one: the offset must be a multiple of the item."""
    if begin % ITEM[dtype]:
        raise RuntimeError(f"storage_offset {begin} is not divisible by {ITEM[dtype]}")
    return raw[begin:end]


def up(number, multiple):
    return -(-number // multiple) * multiple


class Forms(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(FOLDER)
        cls.forms = json.loads((cls.folder / "forms.json").read_text())
        cls.info = {name: (dtype, shape) for name, dtype, shape, _ in cls.forms["state_dict_info"]}
        cls.unit = {name: unit for name, _, _, unit in cls.forms["state_dict_info"]}
        cls.expected = {name: (cls.folder / f"expected-{i}.bin").read_bytes() for i, name in enumerate(cls.info)}

    def buffers(self, form):
        for one in self.forms[form]["buffers"]:
            yield one, (self.folder / one["file"]).read_bytes()

    def rows(self, form):
        """SGLang's reconstruct and checkpoint-engine's worker: explicit ranges of a byte tensor."""
        got = {}
        for buffer, raw in self.buffers(form):
            for row in buffer["rows"]:
                self.assertEqual(row["end_idx"] - row["start_idx"], size(row["dtype"], row["shape"]), row["name"])
                self.assertEqual((row["dtype"], row["shape"]), self.info[row["name"]])
                self.assertNotIn(row["name"], got)
                got[row["name"]] = view(raw, row["dtype"], row["start_idx"], row["end_idx"])
        return got

    def units_whole(self, form, rows="rows"):
        home = {}
        for number, one in enumerate(self.forms[form]["buffers"]):
            for row in one[rows]:
                name = row if isinstance(row, str) else row["name"]
                if home.setdefault(self.unit[name], number) != number:
                    return False
        return True

    def test_flattened_buckets(self):
        self.assertEqual(self.rows("flattened"), self.expected)
        self.assertTrue(self.units_whole("flattened"))

    def test_per_dtype_posts(self):
        self.assertEqual(self.rows("per-dtype"), self.expected)
        for one in self.forms["per-dtype"]["buffers"]:
            self.assertEqual(len({row["dtype"] for row in one["rows"]}), 1)
        self.assertFalse(self.units_whole("per-dtype"))  # why it must be asked for

    def test_ipc_groups(self):
        """NeMo: offsets from names and state_dict_info, 512 bytes each; the end must be what the sender said."""
        for form in ("ipc", "ipc-solo"):
            got = {}
            for buffer, raw in self.buffers(form):
                offset = 0
                for name in buffer["names"]:
                    dtype, shape = self.info[name]
                    got[name] = view(raw, dtype, offset, offset + size(dtype, shape))
                    offset += up(size(dtype, shape), 512)
                self.assertEqual(offset, buffer["used"])
            self.assertEqual(got, self.expected)
        self.assertTrue(self.units_whole("ipc", "names"))
        for one in self.forms["ipc-solo"]["buffers"]:
            self.assertTrue(one["used"] <= 4096 or len(one["names"]) == 1, one["names"])

    def test_packed_broadcasts(self):
        """NeMo's consumer: takes tensors until their sum is over the threshold, receives that many bytes, splits."""
        for form in (name for name in self.forms if name.startswith("packed-") and name != "packed-safe"):
            threshold, todo, got = self.forms[form]["threshold"], list(self.info.items()), {}
            for _, raw in self.buffers(form):
                batch, total = [], 0
                while todo:
                    name, (dtype, shape) = todo.pop(0)
                    batch.append((name, size(dtype, shape)))
                    total += batch[-1][1]
                    if total > threshold:
                        break
                self.assertEqual(len(raw), total)
                offset = 0
                for name, count in batch:
                    got[name] = raw[offset : offset + count]  # cloned where it cannot be viewed
                    offset += count
            self.assertFalse(todo)
            self.assertEqual(got, self.expected)

    def test_packed_broadcasts_by_the_plan(self):
        got = {}
        for buffer, raw in self.buffers("packed-safe"):
            offset = 0
            for name in buffer["names"]:
                count = size(*self.info[name])
                got[name] = raw[offset : offset + count]
                offset += count
            self.assertEqual(offset, len(raw))
        self.assertEqual(got, self.expected)
        self.assertTrue(self.units_whole("packed-safe", "names"))

    def test_checkpoint_engine(self):
        """One IPC buffer of two halves; a bucket overwrites its half when the one before last has been read."""
        half = self.forms["checkpoint-engine"]["bucket"]
        ipc, got = bytearray(2 * half), {}
        for number, (buffer, raw) in enumerate(self.buffers("checkpoint-engine")):
            begin = number % 2 * half
            ipc[begin : len(raw)] = raw[begin:]
            self.assertLessEqual(len(raw), begin + half)
            for row in buffer["rows"]:
                self.assertEqual(row["start_idx"] % 256, 0)
                self.assertTrue(begin <= row["start_idx"] and row["end_idx"] <= begin + half)
                got[row["name"]] = bytes(view(ipc, row["dtype"], row["start_idx"], row["end_idx"]))
        self.assertEqual(got, self.expected)
        self.assertTrue(self.units_whole("checkpoint-engine"))


def with_torch():
    """SGLang's reconstruct_tensors with torch's own view, reshape and errors."""
    import torch

    folder = pathlib.Path(FOLDER)
    forms = json.loads((folder / "forms.json").read_text())
    expected = {row[0]: (folder / f"expected-{i}.bin").read_bytes() for i, row in enumerate(forms["state_dict_info"])}
    for form in ("flattened", "per-dtype"):
        seen = set()
        for buffer in forms[form]["buffers"]:
            raw = bytearray((folder / buffer["file"]).read_bytes())
            flat = torch.frombuffer(raw, dtype=torch.uint8)
            for row in buffer["rows"]:
                dtype = getattr(torch, row["dtype"].removeprefix("torch."))
                tensor = flat[row["start_idx"] : row["end_idx"]].view(dtype).reshape(row["shape"])
                assert tensor.dtype == dtype and list(tensor.shape) == row["shape"], row
                assert tensor.reshape(-1).view(torch.uint8).numpy().tobytes() == expected[row["name"]], row["name"]
                seen.add(row["name"])
        assert seen == set(expected), form
        print(f"torch {torch.__version__} read {len(seen)} tensors of the form {form}")
    # What the packer refuses is what torch refuses.
    try:
        torch.zeros(64, dtype=torch.uint8)[35:39].view(torch.float32)
    except RuntimeError as refused:
        print(f"torch refuses an odd offset: {refused}")
    else:
        raise AssertionError("torch views FP32 at an odd offset")


def enter_torch(venv, arguments):
    """Runs this script again where torch is; 77 where it cannot be had."""
    python, variables = peer_environment.with_torch(venv)
    if python is None:
        print("SKIPPED: torch cannot be had from PyPI:", variables)
        return 77
    return subprocess.run([python, __file__, *arguments, "--inside"], env=variables).returncode


if __name__ == "__main__":
    if "--torch" in sys.argv and "--inside" not in sys.argv:
        sys.exit(enter_torch(sys.argv[3], sys.argv[1:]))
    with tempfile.TemporaryDirectory() as FOLDER:
        subprocess.run([os.path.abspath(sys.argv[1]), FOLDER], check=True)
        if "--inside" in sys.argv:
            with_torch()
        else:
            unittest.main(argv=sys.argv[:1], verbosity=2)
