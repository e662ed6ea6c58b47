# SPDX-License-Identifier: Apache-2.0
"""safetensors files for tests: a writer and a strict reader that share no code with the library."""

import json
import struct

WIDTH = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "F64": 8,
    "I64": 8,
    "U64": 8,
    "C64": 8,
}


def count(shape):
    total = 1
    for extent in shape:
        total *= extent
    return total


def dump(tensors, metadata=None):
    """The bytes of a file. tensors: {name: (dtype, shape, bytes)}, stored in that order."""
    header, at = {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (dtype, shape, data) in tensors.items():
        assert len(data) == count(shape) * WIDTH[dtype], (name, dtype, shape, len(data))
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())


def save(path, tensors, metadata=None):
    with open(path, "wb") as file:
        file.write(dump(tensors, metadata))


def load(path):
    """{name: (dtype, shape, bytes)} and the metadata; refuses whatever the format does not allow."""
    with open(path, "rb") as file:
        raw = file.read()
    (size,) = struct.unpack("<Q", raw[:8])
    assert 8 + size <= len(raw), "header past the end"

    def unique(pairs):
        assert len({key for key, _ in pairs}) == len(pairs), "a key twice"
        return dict(pairs)

    assert raw[8:9] == b"{"
    header = json.loads(raw[8 : 8 + size].decode(), object_pairs_hook=unique)
    metadata = header.pop("__metadata__", {})
    assert all(isinstance(value, str) for value in metadata.values())
    data, at, tensors = raw[8 + size :], 0, {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        assert begin == at and end - begin == count(entry["shape"]) * WIDTH[entry["dtype"]], name
        tensors[name] = (entry["dtype"], entry["shape"], data[begin:end])
        at = end
    assert at == len(data), "bytes behind the last tensor"
    return tensors, metadata


def floats(dtype, data):
    """The values of FP32, BF16 or FP16 bytes, widened exactly."""
    if dtype == "F32":
        return list(struct.unpack(f"<{len(data) // 4}f", data))
    if dtype == "F16":
        return list(struct.unpack(f"<{len(data) // 2}e", data))
    assert dtype == "BF16"
    halves = struct.unpack(f"<{len(data) // 2}H", data)
    return list(struct.unpack(f"<{len(halves)}f", b"".join(struct.pack("<I", half << 16) for half in halves)))


def bf16(values):
    """BF16 bytes of floats, rounded to nearest even."""
    words = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    return struct.pack(f"<{len(words)}H", *[(word + 0x7FFF + (word >> 16 & 1)) >> 16 for word in words])
