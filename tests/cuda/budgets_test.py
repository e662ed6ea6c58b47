#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Static budgets of the compiled kernels. Usage: budgets_test.py PTXAS (ARCH=FILE.cubin | ARCH=FILE.ptx)...

No local memory and no wide access narrowed in any kernel; for those of budgets.txt the fast path's instructions, the
bytes in flight and the threads an SM holds. The checks must find planted faults: budgets that nothing could keep,
instructions that are changed in the cubin, and a kernel of the PTX that has too few registers and spills.
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


def faults_of(arch, kernel, elements, bytes_an_element, share, in_flight, resident, needs):
    """What a kernel breaks of its budget."""
    # Codes of a thread's vector: 16 bytes a load of 2-byte weights make 8 codes, of 4-byte weights 4.
    path = cubin.cheapest(kernel, 4 if bytes_an_element > 4.5 else 8)
    if not path:
        yield "no path loads 16 bytes at once and stores a vector"
        return
    cost = len(path) / elements
    allowed = share * instructions_an_element(arch, bytes_an_element)
    if cost > allowed:
        yield f"{cost:.2f} instructions an element, at most {allowed:.2f}"
    narrow = [i.width for i in path if i.op in cubin.LOADS and i.width == 4]
    if arch == "100a" and "both" not in kernel.name and "column" not in kernel.name:
        if not any(i.op == cubin.LOAD_256 for i in path):
            yield "no load of 32 bytes, which sm_100 has"
        if not any(cubin.NAMES.get(i.op) == "FMUL2" for i in path):
            yield "no product of pairs, which sm_100 has"
    if len(narrow) > 4:  # the task and its sums are read so, weights are not
        yield f"{len(narrow)} loads of 4 bytes on the fast path"
    threads = 16384 // int(elements)
    held = cubin.resident(kernel, threads) * threads
    if held < resident:
        yield f"{held} threads an SM, at least {resident:.0f}"
    kib = cubin.in_flight(path) * held / 1024
    if kib < in_flight:
        yield f"{kib:.0f} KiB in flight an SM, at least {in_flight:.0f}"
    present = {cubin.NAMES.get(i.op) for i in kernel.code}
    for name in needs:
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
        width = 4 if numbers[1] > 4.5 else 8
        fast = cubin.cheapest(kernel, width)
        allowed = instructions_an_element(arch, numbers[1])
        say(f"{arch:5} {name:22} {kernel.registers:3} registers, {len(fast) / numbers[0]:5.2f} of {allowed:5.2f} "
            f"instructions an element, {cubin.in_flight(fast):3} B in flight a thread, "
            f"{cubin.resident(kernel, 16384 // int(numbers[0]))} blocks an SM")
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
             lambda low, high: low & op == 0x23e, lambda low, high: (low & ~op | 0x918, high))):
        if not any(fault in line for line in check(arch, replaced(data, wanted, change), table)):
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
