# SPDX-License-Identifier: GPL-2.0-only
"""Makes memories that attack their observer, from the toy kernel and a seed; no file has them.

Owns what an attacker may change, structure by structure: notes, page tables, symbols, types, lists,
rings, names, CPUs, stacks, and processes. What an observer does with such a memory is tested in
test_peek_hostile_memories.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

import numpy as np

from tests.unit.peek import toy_kernel
from tests.unit.peek.kernel import toy_process
from tests.unit.peek.kernel.toy_process import ToyProcess
from tests.unit.peek.toy_kernel import MODULE_AT, MODULES_VIRTUAL, NOTE_AT, ToyKernel
from trapless.peek.trace.rings import EVENT, HEAD_BYTES, PLACE_BYTES

RINGS_AT = 0x780000
SLOTS = 64
FREE_AT, FREE_END = 0x400000, NOTE_AT
NAMES = (
    b"\x1b]0;PWNED\x07",
    b"\x1b[2J\x1b[41mX",
    b"a\nb fake/1 evt",
    b"x\rOVERWRITE",
    b"\x9b31mCSI8",
    b"\xff\xfe\xc3(",
    b"[/red]x",
    b"[bold]hid",
    b"<script>alert(1)</script>",
    b"\xe2\x80\xae\xe2\x81\xa6reversed",
    b"$\\frac$",
    b"",
    b"A" * 64,
)
NUMBERS = (0, 1, 2, 7, 255, 4096, 65_535, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
ADDRESSES = (0, 1, 0xFFFF_8000_0000_0000, (1 << 64) - 8, 0x7FFF_FFFF_FFFF, 0xDEAD_BEEF_DEAD_BEEF)


def number(random: Random) -> int:
    return random.choice((*NUMBERS, random.getrandbits(32)))


def address(kernel: ToyKernel, random: Random) -> int:
    inside = kernel.image + random.randrange(toy_kernel.IMAGE_BYTES)
    return random.choice((*ADDRESSES, inside, random.getrandbits(64)))


def place(kernel: ToyKernel, name: str) -> int:
    return kernel.physical(kernel.symbols[name])


def put_u32(kernel: ToyKernel, at: int, value: int) -> None:
    kernel.put(at, struct.pack("<I", value & 0xFFFF_FFFF))


def put_u64(kernel: ToyKernel, at: int, value: int) -> None:
    kernel.put(at, struct.pack("<Q", value & (1 << 64) - 1))


def true_note(kernel: ToyKernel) -> str:
    """The note as it was, whatever has become of it."""
    return ToyKernel(form=kernel.form, levels=kernel.levels, probes=kernel.probes).note()


def scatter(kernel: ToyKernel, random: Random, at: int, length: int) -> None:
    """Random bytes at some places of a structure."""
    for _ in range(random.choice((1, 4, 32))):
        kernel.ram[at + random.randrange(length)] = random.randrange(256)


def with_rings(kernel: ToyKernel) -> None:
    """Give the module's map two places and a ring for each CPU, which has some events."""
    table, places = MODULE_AT + 0xE00, MODULE_AT + 0xE40
    for number_, text in enumerate(
        (b"sched_switch:prev:state:next:prio:comm.0:comm.1", b"vfs:n=dx")
    ):
        kernel.put(places + PLACE_BYTES * number_, text.ljust(PLACE_BYTES, b"\0"))
    for cpu in range(kernel.cpus):
        ring = RINGS_AT + cpu * 0x2000
        put_u64(kernel, table + 8 * cpu, kernel.direct_map + ring)
        put_u64(kernel, ring, 20)
        comm = struct.unpack("<2Q", b"cat".ljust(16, b"\0"))
        for slot in range(20):
            event = np.array((slot, slot % 2, 6, (6, 0, 7, 120, *comm)), EVENT).tobytes()
            kernel.put(ring + HEAD_BYTES + slot * len(event), event)
    virtual = MODULES_VIRTUAL - MODULE_AT
    said = {"rings": table + virtual, "cpus": kernel.cpus, "ring_events": SLOTS}
    said |= {"event_bytes": EVENT.itemsize, "places": 2, "place": places + virtual}
    kernel.put_map(said)


# ---- What an attacker changes --------------------------------------------------------------------


def notes(kernel: ToyKernel, random: Random) -> None:
    text = true_note(kernel)
    how = random.randrange(5)
    if how == 0:  # copies of the true one, and others with its page tables
        for at in range(FREE_AT, FREE_END, 4096):
            other = text.replace("PAGESIZE=4096", f"PAGESIZE={random.choice((4096, at))}")
            kernel.put_note(other, at)
    elif how == 1:  # pages as any process can fill them
        for at in range(FREE_AT, FREE_END, 4096):
            release = f"{toy_kernel.RELEASE}{at}"
            kernel.put_note(f"OSRELEASE={release}\nSYMBOL(_stext)=ffffffff81000000\n", at)
    elif how == 2:  # one value is another
        lines = text.splitlines()
        for _ in range(random.choice((1, 3))):
            one = random.randrange(len(lines))
            key = lines[one].partition("=")[0]
            values = ("", "-1", "f" * 16, "9" * 3000, "0x", "\x1b[2J", hex(number(random))[2:])
            lines[one] = f"{key}={random.choice(values)}"
        kernel.put_note("\n".join(lines))
    elif how == 3:
        scatter(kernel, random, NOTE_AT, 24 + len(text))
    else:  # its length
        put_u32(kernel, NOTE_AT + 4, number(random))


def page_tables(kernel: ToyKernel, random: Random) -> None:
    tables = [kernel.root + 4096 * one for one in range(8)]
    for _ in range(random.choice((1, 8, 200))):
        entry = random.choice(tables) + 8 * random.choice(
            (0, 256, 273, 510, 511, random.randrange(512))
        )
        flags = random.choice((0, 0x63, 0xE3, 0x8000_0000_0000_00E3))
        target = random.choice((kernel.root, random.choice(tables), random.getrandbits(52)))
        put_u64(kernel, entry, target & ~0xFFF | flags)


def symbols(kernel: ToyKernel, random: Random) -> None:
    how = random.randrange(6)
    if how == 0:
        put_u32(kernel, place(kernel, "kallsyms_num_syms"), number(random))
    elif how == 1:
        scatter(kernel, random, place(kernel, "kallsyms_token_index"), 512)
    elif how == 2:
        scatter(kernel, random, place(kernel, "kallsyms_token_table"), 600)
    elif how == 3:
        scatter(kernel, random, place(kernel, "kallsyms_names"), 700)
    elif how == 4:
        scatter(kernel, random, place(kernel, "kallsyms_offsets"), 140)
    else:  # one long token, and names full of it
        at, length = place(kernel, "kallsyms_token_table"), random.choice((60, 64, 500))
        kernel.put(at, b"A" * length + b"\0")
        kernel.put(place(kernel, "kallsyms_token_index"), struct.pack("<256H", *[0] * 255, length))
        kernel.put(place(kernel, "kallsyms_names"), (b"\xff\x7f" + bytes(16383))[:700])


def types(kernel: ToyKernel, random: Random) -> None:
    at = place(kernel, "__start_BTF")
    length = kernel.symbols["__stop_BTF"] - kernel.symbols["__start_BTF"]
    how = random.randrange(4)
    if how == 0:
        put_u32(kernel, at + 4 * random.randrange(6), number(random))
    elif how == 1:
        scatter(kernel, random, at + 24, length - 24)
    elif how == 2:  # a type's header
        put_u32(kernel, at + 24 + 4 * random.randrange((length - 24) // 4), number(random))
    else:  # types that hold each other
        data = bytes(kernel.ram[at : at + length])
        _, _, _, _, start, types_bytes, names_at, names_bytes = struct.unpack_from(
            "<HBBIIIII", data
        )
        names = data[24 + names_at : 24 + names_at + names_bytes]
        task = names.find(b"\0task_struct\0") + 1
        count = types_bytes // 36
        body = b"".join(
            struct.pack("<III", task if not one else 0, 4 << 24 | 2, 8)
            + struct.pack("<III", 0, one + 2 if one + 2 <= count else 1, 0) * 2
            for one in range(count)
        )
        kernel.put(at + 24 + start, body)
        put_u32(kernel, at + 12, len(body))


def lists(kernel: ToyKernel, random: Random) -> None:
    tasks = ("init_task", "toy_server", "toy_worker", "toy_kthread")
    for _ in range(random.choice((1, 2, 5))):
        how = random.randrange(6)
        link = kernel.symbols[random.choice(tasks)] + random.choice((64, 80))
        if how == 0:  # to itself
            kernel.ring(link)
        elif how == 1:
            other = kernel.symbols[random.choice(tasks)] + random.choice((64, 80))
            put_u64(kernel, kernel.physical(link), other)
        elif how == 2:
            put_u64(kernel, kernel.physical(link), address(kernel, random))
        elif how == 3:  # signals and parents
            at = place(kernel, random.choice(tasks)) + random.choice((96, 104))
            put_u64(kernel, at, address(kernel, random))
        elif how == 4:  # modules
            at = MODULE_AT + random.choice((0x408, 0x400 + 80, 0x400 + 96, 0x908, 0x950, 0x960))
            target = random.choice((MODULES_VIRTUAL + 0x408, address(kernel, random)))
            put_u64(kernel, at, target)
        else:  # the symbols of one: where, how many, and their names
            at = MODULE_AT + random.choice((0x600, 0x608, 0x610, 0xA00, 0xA08, 0xA10))
            put_u64(kernel, at, random.choice((number(random), address(kernel, random))))


def rings(kernel: ToyKernel, random: Random) -> None:
    how = random.randrange(5)
    if how == 0:
        put_u32(
            kernel, kernel.map_at + random.choice((8, 12, 16, 20, 48, 52, 56, 60)), number(random)
        )
    elif how == 1:
        at = kernel.map_at + random.choice((24, 32, 40, 64))
        put_u64(kernel, at, address(kernel, random))
    elif how == 2:  # places
        texts = (b"sys_enter", b"sched_switch:prev", b"irq_handler_entry:irq:name:handler", *NAMES)
        for one in range(2):
            text = random.choice(texts)[:64]
            kernel.put(MODULE_AT + 0xE40 + 64 * one, text.ljust(64, b"\0"))
    elif how == 3:  # heads
        heads = (1 << 63, (1 << 64) - 1, SLOTS, 10**9)
        put_u64(kernel, RINGS_AT + random.choice((0, 0x2000)), random.choice(heads))
    else:
        kernel.put(RINGS_AT + 64, random.randbytes(20 * 64))


def names(kernel: ToyKernel, random: Random) -> None:
    for task in ("toy_server", "toy_worker", "toy_kthread"):
        name = random.choice(NAMES)[:15]
        kernel.put(place(kernel, task) + 8, name.ljust(16, b"\0"))
    kernel.put(MODULE_AT + 0x400 + 24, random.choice(NAMES)[:55].ljust(56, b"\0"))
    kernel.put(MODULE_AT + 0x780, b"\0" + random.choice(NAMES)[:8] + b"\0")
    comm = random.choice(NAMES)[:15].ljust(16, b"\0")
    kernel.put(RINGS_AT + 64 + 16 + 32, comm)
    if random.randrange(2):
        release = random.choice(NAMES).replace(b"\n", b"")[:30].ljust(9, b"!")
        text = true_note(kernel).encode().replace(toy_kernel.RELEASE.encode(), release)
        kernel.put(NOTE_AT, struct.pack("<III", 11, len(text), 0) + b"VMCOREINFO\0\0" + text)
        kernel.put(place(kernel, "linux_banner") + 14, release + b" (x)\n\0")
        kernel.put(place(kernel, "init_uts_ns") + 8 + 65, release.ljust(65, b"\0"))


def cpus(kernel: ToyKernel, random: Random) -> None:
    how = random.randrange(4)
    if how == 0:
        put_u32(kernel, place(kernel, "nr_cpu_ids"), number(random))
    elif how == 1:
        name = random.choice(("__cpu_online_mask", "__cpu_possible_mask"))
        put_u64(kernel, place(kernel, name), random.getrandbits(64))
    elif how == 2:
        put_u64(kernel, place(kernel, "__per_cpu_offset") + 8, address(kernel, random))
    else:
        name = random.choice(
            ("max_pfn_mapped", "page_offset_base", "vmcoreinfo_note", "jiffies_64")
        )
        put_u64(
            kernel, place(kernel, name), random.choice((number(random), address(kernel, random)))
        )


def stacks(kernel: ToyKernel, random: Random) -> None:
    """Stacks, the tables that unwind them, and where threads keep their stack pointers."""
    how = random.randrange(6)
    task = random.choice(("init_task", "toy_server", "toy_worker", "toy_kthread"))
    pid = {"toy_server": 6, "toy_worker": 7, "toy_kthread": 2}.get(task)
    top = place(kernel, "init_stack" if pid is None else f"stack_{pid}") + 0x300
    tables = place(kernel, "__start_orc_unwind_ip"), place(kernel, "__start_orc_unwind")
    if how == 0:  # addresses, among which there is one of the same frame again
        same = kernel.symbols["schedule"] + random.choice((1, 0x10))
        for at in range(top, top + 0xF8, 8):
            put_u64(kernel, at, random.choice((same, same, address(kernel, random))))
    elif how == 1:
        scatter(kernel, random, tables[0], 24)
    elif how == 2:
        scatter(kernel, random, tables[1], 36)
    elif how == 3:  # the stack pointer, the stack, and whether it is on a CPU
        at = place(kernel, task) + random.choice((128, 136, 144, 160))
        put_u64(kernel, at, random.choice((number(random), address(kernel, random))))
    elif how == 4:  # the tables of a module
        at = MODULE_AT + random.choice((0x480, 0x488, 0x490))
        put_u64(kernel, at, random.choice((number(random), address(kernel, random))))
    else:  # rules that lead nowhere, or round and round
        for at in range(tables[1], tables[1] + 36, 6):
            kernel.put(at, struct.pack("<h", random.choice((0, -8, 8, -24, 32767))))


def processes(kernel: ToyKernel, random: Random) -> None:
    """A process's registers, stack, mappings, page tables, and the pages of its program."""
    how = random.randrange(6)
    same = kernel.direct_map + random.choice((toy_process.NODE, toy_process.XARRAY))
    values = (number(random), address(kernel, random), same | 0xC, same | 0x6, same + 2)
    if how == 0:  # registers and frames, among which there is one of the same frame again
        registers = place(kernel, "stack_7") + 0x300 + 80
        put_u64(kernel, registers + random.choice((0, 8, 16, 24)), random.choice(values))
        for at in range(toy_process.STACK + 0x800, toy_process.STACK + 0x880, 8):
            frame = toy_process.STACK_TOP - 0x800 + 16 * random.randrange(8)
            put_u64(kernel, at, random.choice((frame, toy_process.INNER + 8, *values)))
    elif how < 5:  # mappings, files, the cache, and the tables of pages
        first = random.choice((toy_process.MM, toy_process.FILE, toy_process.TABLES))
        for _ in range(random.choice((1, 4, 16))):
            at = first + 0x1000 * random.randrange(4) + 8 * random.randrange(40)
            put_u64(kernel, at, random.choice(values))
    if how >= 3:  # the program: its headers, sections and symbols
        for _ in range(random.choice((1, 4, 16))):
            at = toy_process.PROGRAM + random.choice((0, 0x180, 0x2000)) + random.randrange(0x200)
            put_u64(kernel, at, random.choice(values))


def anything(kernel: ToyKernel, random: Random) -> None:
    for _ in range(random.choice((1, 10, 1000))):
        at = random.randrange(toy_kernel.IMAGE_AT, len(kernel.ram) - 8)
        put_u64(kernel, at, random.choice((number(random), address(kernel, random))))


FAMILIES: tuple[Callable[[ToyKernel, Random], None], ...] = (
    *(notes, page_tables, symbols, types, lists, rings, names, cpus, stacks, anything),
)


def made_up(seed: int) -> tuple[str, ToyKernel]:
    """The memory of a seed, and what was changed in it; nothing was in that of seed 0."""
    random = Random(seed)
    forms = [(form, levels) for form in toy_kernel.FORMS for levels in (4, 5)]
    form, levels = random.choice(forms)
    kernel = ToyKernel(form=form, levels=levels, probes=11)
    with_rings(kernel)
    ToyProcess(kernel)
    if seed == 0:
        return "nothing", kernel
    family = FAMILIES[seed % len(FAMILIES)]
    family(kernel, random)
    if seed % 4 == 0:
        random.choice(FAMILIES)(kernel, random)
    if seed % 3 == 0:
        processes(kernel, Random(seed))
    return family.__name__, kernel
