#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the kernels of a cubin: registers, shared memory, instructions, and the cheapest way through them.

An instruction has 16 bytes. The fields read here (opcode, guard, width of an access, target of a branch, what a
conversion or a bulk copy is of) were compared with nvdisasm 13.5 over all kernels of ours for sm_90a and sm_100a.
Usage: cubin.py FILE.cubin...
"""
import collections
import heapq
import struct
import sys

# Opcode: low 12 bits. Loads and stores carry their width in bits 73-75.
LOADS, LOAD_256, STORES, STORE_256 = {0x381, 0x981}, 0x97e, {0x386, 0x986}, 0x97f
LOCAL = {0x983, 0x387, 0x987}
BRANCH, UNIFORM_BRANCH, EXIT, CALL, NOP = 0x947, 0x547, 0x94d, 0x944, 0x918
WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 8, 6: 16}
TRY_WAIT, STORE_SHARED = 0x5a7, 0x388
NAMES = {0x24a: "FMUL2", 0x20f: "VIMNMX3", 0x3c4: "REDUX", 0xb1d: "BAR", 0x97e: "LDG.256", TRY_WAIT: "SYNCS.TRYWAIT",
         0x3c6: "FENCE.ASYNC"}
# Where bits 72-87 tell which of several it is: two codes of two floats, and the two ways of a bulk copy.
FORMS = {(0x23e, 0x8070): "F2FP.E4M3", (0x23e, 0x8060): "F2FP.E5M2", (0x3ba, 2): "UBLKCP.S.G", (0x3ba, 4): "UBLKCP.G.S"}
# What first looks at loaded weights: maxima, conversions, products, a warp's maximum, a barrier.
CONSUMERS = {0x20f, 0xc0f, 0x248, 0x848, 0xc48, 0x240, 0x220, 0xc20, 0x24a, 0x23e, 0x3c4, 0xb1d}
ALWAYS = 7  # the guard PT

Instruction = collections.namedtuple("Instruction", "op name guarded width target")
Kernel = collections.namedtuple("Kernel", "name registers shared threads code")


def decode(data):
    code = []
    for at in range(0, len(data), 16):
        low, high = struct.unpack_from("<QQ", data, at)
        op = low & 0xfff
        width = 32 if op in (LOAD_256, STORE_256) else WIDTHS.get(high >> 9 & 7, 0)
        offset = (low >> 34 | (high & 0x3ffff) << 30) << 8 | low >> 16 & 0xff
        if offset >> 55:
            offset -= 1 << 56
        name = NAMES.get(op) or FORMS.get((op, high >> 8 & 0xffff), "")
        code.append(Instruction(op, name, (low >> 12 & 15) != ALWAYS, width, at // 16 + 1 + offset // 4))
    return code


def sections(data):
    """(name, bytes, size, place in the file) of every section."""
    start, = struct.unpack_from("<Q", data, 0x28)
    count, names = struct.unpack_from("<HH", data, 0x3c)
    table = [struct.unpack_from("<IIQQQQIIQQ", data, start + 64 * i) for i in range(count)]
    for name, _, _, _, offset, size, _, _, _, _ in table:
        at = table[names][4] + name
        yield data[at:data.index(b"\0", at)].decode(), data[offset:offset + size], size, offset


def register_counts(found):
    """{kernel: registers a thread}, from the attribute EIATTR_REGCOUNT of .nv.info and the symbols it counts for."""
    symbols, names = found[".symtab"][0], found[".strtab"][0]
    info, at, counts = found[".nv.info"][0], 0, {}
    while at < len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        if form == 4 and attribute == 0x2f:
            symbol, count = struct.unpack_from("<II", info, at + 4)
            name, = struct.unpack_from("<I", symbols, 24 * symbol)
            counts[names[name:names.index(b"\0", name)].decode()] = count
        at += 4 + (size if form == 4 else 0)
    return counts


def most_threads(info):
    """Threads of a block, from the attribute EIATTR_MAX_THREADS of a kernel's .nv.info."""
    at = 0
    while at < len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        if form == 4 and attribute == 0x05:
            x, y, z = struct.unpack_from("<III", info, at + 4)
            return x * y * z
        at += 4 + (size if form == 4 else 0)
    return 1024


def read(data):
    """{name: Kernel} of a cubin's bytes."""
    found = {name: (body, size) for name, body, size, _ in sections(data)}
    shared = {name[11:]: size for name, (_, size) in found.items() if name.startswith(".nv.shared.")}
    texts = {name[6:]: decode(body) for name, (body, _) in found.items() if name.startswith(".text.")}
    registers = register_counts(found)
    return {name: Kernel(name, registers[name], shared.get(name, 0), most_threads(found[".nv.info." + name][0]), code)
            for name, code in texts.items()}


def accesses(kernel):
    """Widths of global loads and stores, as Counters, and the number of local accesses (spills)."""
    loads = collections.Counter(i.width for i in kernel.code if i.op in LOADS or i.op == LOAD_256)
    stores = collections.Counter(i.width for i in kernel.code if i.op in STORES or i.op == STORE_256)
    return loads, stores, sum(i.op in LOCAL for i in kernel.code)


def walk(code, first, last, marks):
    """The fewest instructions from code[first] to one of which last(place, instruction) is true, by way of all marks.

    marks: predicates of instructions, each of which must be true of one on the way. Empty where there is no such way.
    """
    every = (1 << len(marks)) - 1
    start = (first, 0)
    best, before, queue = {start: 0}, {}, [(0, start)]
    while queue:
        cost, state = heapq.heappop(queue)
        if cost > best[state]:
            continue
        at, seen = state
        i = code[at]
        if seen == every and last(at, i):
            path = [i]
            while state in before:
                state = before[state]
                path.append(code[state[0]])
            return [one for one in reversed(path) if one.op != NOP]
        seen |= sum(1 << n for n, mark in enumerate(marks) if mark(i))
        following = []
        if i.op in (BRANCH, UNIFORM_BRANCH):
            following.append(i.target)
        if (i.op not in (BRANCH, EXIT)) or i.guarded:
            following.append(at + 1)
        for target in following:
            state_then = (target, seen)
            if 0 <= target < len(code) and cost + 1 < best.get(state_then, 1 << 60):
                best[state_then] = cost + 1
                before[state_then] = state
                heapq.heappush(queue, (cost + 1, state_then))
    return []


def cheapest(kernel, store_width):
    """The fewest instructions from entry to exit that load 16 bytes at once and store `store_width` at once.

    With everything unrolled this is the fast path: a whole, aligned tile of finite weights. Returns its instructions.
    """
    return walk(kernel.code, 0, lambda at, i: i.op == EXIT,
                [lambda i: (i.op in LOADS or i.op == LOAD_256) and i.width >= 16,
                 lambda i: (i.op in STORES or i.op == STORE_256) and i.width >= store_width])


def cheapest_turn(kernel, store_width):
    """The same of a loop that waits for bulk copies: from one wait to the next, by way of a barrier of the block.

    It is the way of a warp that asks for no copies: all but one of a block.
    """
    turns = [walk(kernel.code, first + 1, lambda at, i, first=first: at == first,
                  [lambda i: i.op == STORE_SHARED and i.width >= store_width, lambda i: i.name == "BAR"])
             for first, i in enumerate(kernel.code) if i.op == TRY_WAIT]
    return min((turn for turn in turns if turn), key=len, default=[])


def in_flight(path):
    """Bytes that a thread has asked for before it first looks at any of them, at most, along a path."""
    most = run = 0
    for i in path:
        if i.op in LOADS or i.op == LOAD_256:
            run += i.width if i.width >= 16 else 0
        elif i.op in CONSUMERS:
            most, run = max(most, run), 0
    return max(most, run)


def resident(kernel):
    """Blocks that an SM of sm_90 or sm_100 holds at once."""
    registers, threads = (kernel.registers + 7) // 8 * 8, kernel.threads
    return min(2048 // threads, 65536 // (max(registers, 8) * threads), 228 * 1024 // max(kernel.shared, 1024))


def main():
    for path in sys.argv[1:]:
        with open(path, "rb") as file:
            kernels = read(file.read())
        for name, kernel in sorted(kernels.items()):
            loads, stores, local = accesses(kernel)
            path = cheapest(kernel, 4)
            print(f"{name:28} {kernel.registers:3} registers, {kernel.shared:5} B shared, {len(kernel.code):4} in all, "
                  f"{len(path):4} on the fast path, {in_flight(path):3} B in flight, local {local}, "
                  f"loads {dict(loads)}, stores {dict(stores)}")


if __name__ == "__main__":
    main()
