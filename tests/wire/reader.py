#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An engine in Python, written from docs/wire.md alone: receives updates from a byte stream.

Usage: reader.py RECORDING PREFIX. Writes PREFIX-v<version>.received for every version that commits.
"""
import json
import struct
import sys

M64 = (1 << 64) - 1
MAGIC = 0x57385046
HELLO, ACCEPT, REFUSE, BEGIN, DATA, RELEASE, FINISH, VOTE, COMMIT, COMMITTED, ABORT, BYE = range(1, 13)
DTYPES = ("BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 "
          "I32 U32 F32 C64 F64 I64 U64").split()
BITS = [8, 4, 6, 6, 8, 8, 8, 8, 8, 8, 8, 16, 16, 16, 16, 32, 32, 32, 64, 64, 64, 64]
ROLES = ["codes", "scales", "kept"]


class Refused(Exception):
    pass


def refuse_unless(truth, why):
    if not truth:
        raise Refused(why)


def bare(text, h=0xCBF29CE484222325):
    for byte in text if isinstance(text, bytes) else text.encode():
        h = ((h ^ byte) * 0x100000001B3) & M64
    return h


def number(n, h):
    return bare(struct.pack("<Q", n & M64), h)


def string(text, h):
    return bare(text, number(len(text.encode()), h))


def mix(v):
    v = ((v ^ v >> 33) * 0xFF51AFD7ED558CCD) & M64
    v = ((v ^ v >> 33) * 0xC4CEB9FE1A85EC53) & M64
    return v ^ v >> 33


def checksum(data):
    total = mix(len(data))
    for i in range(0, (len(data) + 65535) // 65536):
        part = data[65536 * i:65536 * (i + 1)]
        lanes = [mix(8 * i + k + 1) for k in range(8)]
        padded = part + bytes(-len(part) % 64)
        for at in range(0, len(padded), 64):
            for k, word in enumerate(struct.unpack_from("<8Q", padded, at)):
                v = ((lanes[k] ^ word) * 0x9E3779B185EBCA87) & M64
                lanes[k] = (v << 29 | v >> 35) & M64
        d = len(part)
        for k in range(8):
            d = (mix(d ^ lanes[k]) + k) & M64
        total += d
    return total & M64


def size(tensor):
    bits = BITS[DTYPES.index(tensor["dtype"])]
    for extent in tensor["shape"]:
        bits *= extent
    refuse_unless(bits % 8 == 0, tensor["name"] + ": bits do not fill bytes")
    return bits // 8


class Manifest:
    def __init__(self, of):
        refuse_unless(of["fp8wire_manifest"] == 1, "another schema")
        self.encodings = of["encodings"]
        for one in self.encodings:
            refuse_unless(bare(one["text"]) == int(one["wire_id"], 16), "wire_id is not the hash of its text")
            grid = one["text"].split(";codes=")[0]
            refuse_unless(bare(grid) == int(one["grid_id"], 16), "grid_id is not the hash of the grid")
        self.tensors = of["tensors"]
        self.aliases = of["aliases"]
        self.items = []  # indices of tensors
        for i, tensor in enumerate(self.tensors):
            if tensor["role"] == "scales":
                before = self.tensors[i - 1]
                follows = before["role"] == "codes" and before["name"] == tensor["of"]
                refuse_unless(follows, tensor["name"] + ": without its codes")
                self.items[-1].append(i)
            else:
                self.items.append([i])
        for item in self.items:
            refuse_unless(len(item) == (2 if self.tensors[item[0]]["role"] == "codes" else 1), "codes without scales")
        self.item_of = {i: n for n, item in enumerate(self.items) for i in item}

    def hash(self):
        h = bare("fp8wire manifest 1")
        for i, tensor in enumerate(self.tensors):
            first = self.tensors[self.items[self.item_of[i]][0]]
            h = string(tensor["unit"], string(tensor["name"], h))
            h = string(tensor["dtype"], number(ROLES.index(tensor["role"]), h))
            wire_id = int(self.encodings[first["encoding"]]["wire_id"], 16) if first["role"] == "codes" else 0
            h = number(wire_id, h)
            for n in first.get("part", [0, 0, 0, 0]):
                h = number(n, h)
            h = number(len(tensor["shape"]), h)
            for extent in tensor["shape"]:
                h = number(extent, h)
        for alias in self.aliases:
            h = string(alias["of"], string(alias["name"], h))
        return h


class Plan:
    def __init__(self, manifest, capacity, alignment, slots, split_rows, by_dtype):
        self.m, self.capacity, self.align, self.split = manifest, capacity, alignment, split_rows
        self.buffers = []  # lists of (tensor, offset, first byte, bytes)
        self.used, self.closed = [], []
        units = {}
        for item in manifest.items:
            units.setdefault(manifest.tensors[item[0]]["unit"], []).append(item)
        order = list(units.values())
        dtype_of = lambda unit: DTYPES.index(manifest.tensors[unit[0][0]]["dtype"])
        if by_dtype:
            order.sort(key=dtype_of)
        last = None
        for unit in order:
            if by_dtype and dtype_of(unit) != last and self.buffers:
                self.closed[-1] = True
            last = dtype_of(unit)
            self.place_unit(unit)
        h = bare("fp8wire plan 1", manifest.hash())
        for n in (slots, alignment, capacity, int(split_rows) + 2 * int(by_dtype)):
            h = number(n, h)
        for b, pieces in enumerate(self.buffers):
            for tensor, offset, first, count in pieces:
                for n in (tensor, b, offset, first, count):
                    h = number(n, h)
        self.hash = h

    def up(self, n):
        return -(-n // self.align) * self.align

    def open(self, closed):
        self.buffers.append([])
        self.used.append(0)
        self.closed.append(closed)

    def place(self, tensor, first, count):
        self.buffers[-1].append((tensor, self.used[-1], first, count))
        self.used[-1] += self.up(count)

    def place_unit(self, unit):
        total = sum(self.up(size(self.m.tensors[t])) for item in unit for t in item)
        over = total > self.capacity
        if over and self.split:
            together = False
            for item in unit:
                if self.cut(item):
                    together = False
                    continue
                if not together:
                    self.open(True)
                together = True
                for t in item:
                    self.place(t, 0, size(self.m.tensors[t]))
            return
        if not self.buffers or self.closed[-1] or over or self.used[-1] + total > self.capacity:
            self.open(over)
        for item in unit:
            for t in item:
                self.place(t, 0, size(self.m.tensors[t]))

    def cut(self, item):
        codes = self.m.tensors[item[0]]
        block = codes.get("split_rows", 0)
        if len(item) != 2 or block == 0:
            return False
        batch, (rows, cols) = (codes["shape"][0] if len(codes["shape"]) == 3 else 1), codes["shape"][-2:]
        blocks = -(-rows // block)
        scale_bytes = size(self.m.tensors[item[1]])
        if batch * rows * cols == 0 or scale_bytes == 0:
            return False
        scale_row = scale_bytes // (batch * blocks)

        def fits(code_rows, scale_rows):
            return self.up(code_rows * cols) + self.up(scale_rows * scale_row) <= self.capacity
        matrices = max((n for n in range(batch + 1) if n == 0 or fits(n * rows, n * blocks)), default=0)
        pieces = []
        if matrices:
            for b in range(0, batch, matrices):
                n = min(matrices, batch - b)
                pieces.append((b * rows, n * rows, b * blocks, n * blocks))
        else:
            step = max(n for n in range(blocks + 1) if n == 0 or fits(min(n * block, rows), n))
            if step == 0:
                return False
            for b in range(batch):
                for first in range(0, blocks, step):
                    end = min(first + step, blocks)
                    row, row_end = first * block, min(end * block, rows)
                    pieces.append((b * rows + row, row_end - row, b * blocks + first, end - first))
        if len(pieces) > 65536:
            return False
        for row, n, scale, scales in pieces:
            self.open(True)
            self.place(item[0], row * cols, n * cols)
            self.place(item[1], scale * scale_row, scales * scale_row)
        return True


def unique_keys(pairs):
    refuse_unless(len(pairs) == len({key for key, _ in pairs}), "a key stands twice")
    return dict(pairs)


def nan_code(tensor, code):
    return {"F8_E4M3": code & 127 == 127, "F8_E5M2": code & 127 >= 124}.get(tensor["dtype"], False)


def bad_scale(tensor, data):
    if tensor["dtype"] in ("U8", "F8_E8M0"):
        return 255 in data
    return any(not 0 < bits < 0x7F800000 for (bits,) in struct.iter_unpack("<I", data))


class Engine:
    """Stages an update and serves it once it is whole."""

    def __init__(self):
        self.version, self.served, self.staged, self.failure = 0, None, None, None

    def hello(self, text):
        of = json.loads(text, object_pairs_hook=unique_keys)
        refuse_unless(of["protocol"] == 1, "another protocol")
        self.m = Manifest(of["manifest"])
        self.plan = Plan(self.m, of["capacity"], of["alignment"], of["slots"], of["split_rows"], of["by_dtype"])
        refuse_unless(self.plan.hash == int(of["plan_hash"], 16), "plans differ")

    def begin(self, payload):
        (version,) = struct.unpack("<Q", payload)
        refuse_unless(version > self.version, "versions must rise")
        self.version, self.next = version, 0
        self.staged = [bytearray(size(t)) for t in self.m.tensors]
        self.got = []

    def data(self, payload, take):
        protocol, buffer, plan_hash, version, used = struct.unpack("<IIQQQ", payload)
        data = take(used)
        refuse_unless((protocol, plan_hash, version) == (1, self.plan.hash, self.version), "a frame of another update")
        refuse_unless(buffer == self.next, "buffers out of order")
        refuse_unless(used == self.plan.used[buffer], "another size")
        self.next += 1
        for tensor, offset, first, count in self.plan.buffers[buffer]:
            self.staged[tensor][first:first + count] = data[offset:offset + count]
            self.got.append((tensor, checksum(data[offset:offset + count])))

    def finish(self, payload):
        version, pieces, items = struct.unpack_from("<QII", payload)
        refuse_unless(len(payload) == 16 + 8 * (pieces + items), "malformed finish")
        refuse_unless(version == self.version and self.next == len(self.plan.buffers), "incomplete")
        refuse_unless(pieces == len(self.got) and items == len(self.m.items), "finish counts differently")
        sums = struct.unpack_from(f"<{pieces}Q", payload, 16)
        statuses = struct.unpack_from(f"<{items}q", payload, 16 + 8 * pieces)
        for expected, (tensor, got) in zip(sums, self.got):
            refuse_unless(expected == got, self.m.tensors[tensor]["name"] + ": checksum")
        for i, tensor in enumerate(self.m.tensors):
            if statuses[self.m.item_of[i]] >= 0:
                continue
            if tensor["role"] == "codes":
                refuse_unless(not any(nan_code(tensor, code) for code in self.staged[i]), tensor["name"] + ": NaN code")
            if tensor["role"] == "scales":
                refuse_unless(not bad_scale(tensor, self.staged[i]), tensor["name"] + ": bad scale")

    def commit(self, payload):
        refuse_unless(struct.unpack("<Q", payload) == (self.version,) and self.staged, "commit of another version")
        self.served, self.staged = b"".join(self.staged), None


def main(recording, prefix):
    stream = open(recording, "rb").read()
    at = 0

    def take(count):
        nonlocal at
        refuse_unless(at + count <= len(stream), "the stream ends early")
        at += count
        return stream[at - count:at]
    engine = Engine()
    while True:
        magic, kind, zero, count = struct.unpack("<IHHQ", take(16))
        refuse_unless(magic == MAGIC and zero == 0, "no message")
        payload = take(count)
        if kind == HELLO:
            engine.hello(payload.decode())
        elif kind == BEGIN:
            engine.begin(payload)
        elif kind == DATA:
            engine.data(payload, take)
        elif kind == FINISH:
            engine.finish(payload)
        elif kind == ABORT:
            version, failed = struct.unpack_from("<QB", payload)
            code, condition, numbers, rank, got, expected, length = struct.unpack_from("<HBBiqqI", payload, 9)
            tensor = payload[37:37 + length].decode()
            (what_length,) = struct.unpack_from("<I", payload, 37 + length)
            what = payload[41 + length:].decode()
            refuse_unless(failed == 1 and len(what.encode()) == what_length, "malformed abort")
            print(f"version {version} aborted: code {code}, {tensor}: {what}")
            engine.staged = None
        elif kind == COMMIT:
            engine.commit(payload)
            with open(f"{prefix}-v{engine.version}.received", "wb") as out:
                out.write(engine.served)
            print(f"version {engine.version} served: {len(engine.served)} bytes")
        elif kind == BYE:
            refuse_unless(at == len(stream), "bytes behind the end")
            return


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Refused as why:
        print(f"refused: {why}", file=sys.stderr)
        sys.exit(1)
