#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Static budgets of the compiled kernels. Usage: budgets_test.py PTXAS (ARCH=FILE.cubin | ARCH=FILE.ptx)...

No local memory and no wide access narrowed in any kernel; for those of budgets.txt the fast path's instructions, the
conversions and products of pairs on it, the bytes in flight and the threads an SM holds. A kernel of bulk copies has a
loop in place of a path, and a piece of the weights for each of its blocks in place of its threads' loads. The checks
must find planted faults: budgets that nothing could keep, instructions that are changed in the cubin, and a kernel of
the PTX that has too few registers and spills.
"""
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tools"))
import cubin

# SMs, clock in GHz and achievable TB/s (docs/cuda.md): an SM issues 128 lanes' instructions a clock.
DEVICES = {"90a": (132, 1.755, 4.3), "100a": (148, 1.85, 7.06)}


def instructions_an_element(arch, bytes_an_element):
    sms, clock, rate = DEVICES[arch]
    return sms * 128 * clock * 1e9 / (rate * 1e12 / bytes_an_element)


def budgets():
    for line in (HERE / "budgets.txt").read_text(encoding="utf-8").split("\n"):
        if line and not line.startswith("#"):
            name, *numbers, needs = line.split()
            yield (name, *map(float, numbers), needs.split(","))


def weight_bytes(bytes_an_element):
    """Of a weight, from what is read and written for it: FP32 is all that takes more than 4.5 bytes."""
    return 4 if bytes_an_element > 4.5 else 2


def fast_path(kernel, bytes_an_element, needs):
    """A thread's instructions for its elements. It stores the codes of 16 bytes of weights at once, or more."""
    codes = 16 // weight_bytes(bytes_an_element)
    return cubin.cheapest_turn(kernel, codes) if "UBLKCP.S.G" in needs else cubin.cheapest(kernel, codes)


def in_flight_of_block(kernel, path, elements, bytes_an_element, needs):
    """Bytes that a block has asked for before it looks at any: those of its threads, or the piece that comes next."""
    if "UBLKCP.S.G" in needs:
        return kernel.threads * elements * weight_bytes(bytes_an_element)
    return kernel.threads * cubin.in_flight(path)


def faults_of(arch, kernel, elements, bytes_an_element, share, in_flight, resident, needs):
    """What a kernel breaks of its budget."""
    path = fast_path(kernel, bytes_an_element, needs)
    if not path:
        yield "no path loads 16 bytes at once and stores a vector"
        return
    cost = len(path) / elements
    allowed = share * instructions_an_element(arch, bytes_an_element)
    if cost > allowed:
        yield f"{cost:.2f} instructions an element, at most {allowed:.2f}"
    narrow = [i.width for i in path if i.op in cubin.LOADS and i.width == 4]
    # Every code of the path is made by an instruction that makes two, and on sm_100 every product by one of a pair.
    for name in ["F2FP"] + ["FMUL2"] * (arch == "100a"):
        made = 2 * sum(i.name.startswith(name) for i in path)
        if made < elements:
            yield f"{made} of {elements:.0f} elements by {name}"
    needed = [name.split(":")[-1] for name in needs if ":" not in name or name.startswith(arch + ":")]
    if "LDG.256" in needed:
        if 32 * sum(i.op == cubin.LOAD_256 for i in path) < elements * weight_bytes(bytes_an_element):
            yield "weights that are not loaded by 32 bytes"
    if len(narrow) > 4:  # the task and its sums are read so, weights are not
        yield f"{len(narrow)} loads of 4 bytes on the fast path"
    blocks = cubin.resident(kernel)
    if blocks * kernel.threads < resident:
        yield f"{blocks * kernel.threads} threads an SM, at least {resident:.0f}"
    kib = in_flight_of_block(kernel, path, elements, bytes_an_element, needs) * blocks / 1024
    if kib < in_flight:
        yield f"{kib:.0f} KiB in flight an SM, at least {in_flight:.0f}"
    present = {i.name for i in kernel.code}
    for name in needed:
        if name not in present:
            yield f"no {name}"


def check(arch, data, table, say=lambda text: None):
    """Faults as lines."""
    kernels = cubin.read(data)
    found = [f"{arch} {name}: {cubin.accesses(kernel)[2]} accesses to local memory"
             for name, kernel in kernels.items() if cubin.accesses(kernel)[2]]
    for name, *numbers, needs in table:
        if name not in kernels:
            found.append(f"{arch} {name}: not compiled")
            continue
        kernel = kernels[name]
        found += [f"{arch} {name}: {fault}" for fault in faults_of(arch, kernel, *numbers, needs)]
        fast = fast_path(kernel, numbers[1], needs)
        allowed = instructions_an_element(arch, numbers[1])
        kib = in_flight_of_block(kernel, fast, *numbers[:2], needs) * cubin.resident(kernel) / 1024
        say(f"{arch:5} {name:22} {kernel.registers:3} registers, {len(fast) / numbers[0]:5.2f} of {allowed:5.2f} "
            f"instructions an element, {kib:4.0f} KiB in flight an SM, {cubin.resident(kernel)} blocks an SM")
    return found


def replaced(data, wanted, change):
    """The cubin with the two words of every instruction changed that `wanted` says yes to."""
    made = bytearray(data)
    for name, _, size, place in cubin.sections(data):
        for at in range(place, place + size, 16) if name.startswith(".text.") else ():
            words = struct.unpack_from("<QQ", data, at)
            if wanted(*words):
                struct.pack_into("<QQ", made, at, *change(*words))
    return bytes(made)


def planted(arch, data, table):
    """Planted faults that the checks did not find."""
    op = 0xfff
    impossible = [(name, elements, size, 0.01, 1e6, 1e6, ["NOTHING"]) for name, elements, size, *_ in table]
    noticed = check(arch, data, impossible)
    for name, *_ in table:
        for fault in ("instructions an element", "in flight", "threads an SM", "no NOTHING"):
            if not any(line.startswith(f"{arch} {name}: ") and fault in line for line in noticed):
                yield f"{arch} {name}: '{fault}' was not found in a budget of nothing"
    for what, fault, wanted, change in (
            ("a load from shared memory made one from local memory", "local memory",
             lambda low, high: low & op == 0x984, lambda low, high: (low & ~op | 0x983, high)),
            ("wide loads made narrow", "no path",
             lambda low, high: low & op in (0x981, 0x97e),
             lambda low, high: (low & ~op | 0x981, high & ~(7 << 9) | 5 << 9)),
            ("conversions taken out", "no F2FP",
             lambda low, high: low & op == 0x23e, lambda low, high: (low & ~op | 0x918, high)),
            ("conversions to another format", "no F2FP.E4M3",
             lambda low, high: low & op == 0x23e, lambda low, high: (low, high ^ 0x10 << 8)),
            ("products of pairs made single ones", "elements by FMUL2" if arch == "100a" else "",
             lambda low, high: low & op == 0x24a, lambda low, high: (low & ~op | 0x220, high)),
            ("some loads of 32 bytes made of 16", "not loaded by 32" if arch == "100a" else "",
             lambda low, high: low & op == 0x97e and low >> 19 & 1, lambda low, high: (low & ~op | 0x981, high)),
            ("bulk copies taken out", "no UBLKCP",
             lambda low, high: low & op == 0x3ba, lambda low, high: (low & ~op | 0x918, high)),
            ("a loop of bulk copies without its barrier", "mx_bulk_bf16: no path",
             lambda low, high: low & op == 0xb1d, lambda low, high: (low & ~op | 0x918, high))):
        if fault and not any(fault in line for line in check(arch, replaced(data, wanted, change), table)):
            yield f"{arch}: {what}: not found"


def spilled(ptxas, arch, text, name):
    """A cubin of one kernel, of which an SM shall hold so many blocks that its values do not fit in the registers."""
    entries = text.split(".visible .entry ")
    body = next(entry for entry in entries if entry.startswith(name + "("))
    body = re.sub(r"\.minnctapersm \d+", ".minnctapersm 8", body)
    with tempfile.TemporaryDirectory() as folder:
        source, made = pathlib.Path(folder, "k.ptx"), pathlib.Path(folder, "k.cubin")
        source.write_text(entries[0] + ".visible .entry " + body, encoding="utf-8")
        command = [ptxas, "-O3", "-arch", "sm_" + arch, "-o", made, source]
        subprocess.run(command, check=True, capture_output=True)
        strict = subprocess.run([*command, "-Werror", "--warn-on-spills"], capture_output=True, check=False)
        return made.read_bytes(), strict.returncode != 0


def unnoticed_spills(ptxas, arch, path, table):
    text = pathlib.Path(path).read_text(encoding="utf-8")
    row = next(row for row in table if row[0] == "block_bf16")
    data, refused = spilled(ptxas, arch, text, row[0])
    if not refused:
        yield f"{arch}: ptxas builds a kernel that spills"
    found = [line for line in check(arch, data, [row]) if "local memory" in line]
    print(*found, sep="\n")
    if not found:
        yield f"{arch}: a kernel that spills: not found"


def main():
    table = list(budgets())
    wrong = []
    ptxas = sys.argv[1]
    for argument in sys.argv[2:]:
        arch, path = argument.split("=", 1)
        if path.endswith(".ptx"):
            wrong += unnoticed_spills(ptxas, arch, path, table)
            continue
        data = pathlib.Path(path).read_bytes()
        wrong += [*check(arch, data, table, print), *planted(arch, data, table)]
    for line in wrong:
        print(line)
    print(f"{len(table)} budgets, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
