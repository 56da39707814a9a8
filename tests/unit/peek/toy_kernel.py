# SPDX-License-Identifier: GPL-2.0-only
"""A toy kernel in a few megabytes of memory, for tests of reading kernels from outside.

It has what a real one leaves there (a VMCOREINFO note, page tables, compressed symbols, types,
per-CPU data, a module), laid out as each generation of kernels does, and nothing that runs. Tests
change a part of it and see what is said.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, fields
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from trapless.peek.sampling.probes import MAGIC, MAP, ProbeMap
from trapless.peek.sampling.sites import SITE

RAM_BYTES = 8 << 20
BLOCK_BYTES = 64 << 10
IMAGE_AT = 0x200000  # physical
IMAGE_BYTES = 0x200000
SHIFT = 0x1E00000  # what KASLR added
LINKED = 0xFFFFFFFF81000000
IMAGE_BASE = 0xFFFFFFFF80000000
NOTE_AT = 0x500000
PERCPU_AT = 0x600000
PERCPU_BYTES = 0x10000
MODULE_AT = 0x700000
DIRECT_MAP = {4: 0xFFFF_8880_0000_0000, 5: 0xFF11_0000_0000_0000}
MODULES_VIRTUAL = 0xFFFFFFFFC0000000
BUILD_ID = "0123456789abcdef0123456789abcdef01234567"
RELEASE = "6.1.0-toy"
CODE_SITES = (LINKED + SHIFT + 0x110, LINKED + SHIFT + 0x190)  # in schedule, schedule_timeout
TASK_BYTES = 176
STACK_BYTES = 0x400
VMEMMAP = 0xFFFF_EA00_0000_0000
CANARY = 0x1122334455667788
MASK = (1 << 64) - 1
WORD = 0x80  # a token of several letters
# Of unwinding, by form: how many bits the type of an entry has, and the numbers of what is used.
UNWINDING = {
    "below-base": {"bits": 2, "sp": 5, "end": (0, 0), "call": 0, "regs": 1},
    "from-base": {"bits": 3, "sp": 5, "end": (0, 1), "call": 2, "regs": 3},
    "from-place": {"bits": 3, "sp": 3, "end": (0, 1), "call": 2, "regs": 3},
}
SAVED = ("ip", "cs", "sp", "bp", "r10", "r13", "di", "dx", "ax")
FORMS = ("below-base", "from-base", "from-place")
MAP_MEMBERS = ("magic", *(one.name for one in fields(ProbeMap)[1:]))
"""Of struct tlk_probe_map; ProbeMap has its address in place of the magic."""


class Types:
    """BTF, one type after the other; numbers are handed out from 1."""

    def __init__(self) -> None:
        self._types, self._strings, self._count = b"", b"\0", 0

    def name(self, text: str) -> int:
        if not text:
            return 0
        found = self._strings.find(b"\0" + text.encode() + b"\0") + 1
        if not found:
            found = len(self._strings)
            self._strings += text.encode() + b"\0"
        return found

    def add(
        self, kind: int, name: str, size: int, body: bytes = b"", count: int = 0, flag=0
    ) -> int:
        info = flag << 31 | kind << 24 | count
        self._types += struct.pack("<III", self.name(name), info, size) + body
        self._count += 1
        return self._count

    def integer(self, name: str, size: int) -> int:
        return self.add(1, name, size, struct.pack("<I", 8 * size))

    def array(self, of: int, count: int) -> int:
        return self.add(3, "", 0, struct.pack("<III", of, 1, count))

    def record(self, name: str, size: int, members, kind: int = 4, bits: bool = False) -> int:
        """`members`: (name, type, byte offset), or with `bits` (name, type, bit offset, width)."""
        body = b""
        for member in members:
            place = member[3] << 24 | member[2] if bits else 8 * member[2]
            body += struct.pack("<III", self.name(member[0]), member[1], place)
        return self.add(kind, name, size, body, len(members), int(bits))

    def enumeration(self, name: str, values: dict[str, int], signed: bool = False) -> int:
        body = b"".join(
            struct.pack("<Ii", self.name(text), value) for text, value in values.items()
        )
        return self.add(6, name, 4, body, len(values), int(signed))

    def data(self) -> bytes:
        header = struct.pack(
            "<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(self._types), len(self._types), len(self._strings)
        )
        return header + self._types + self._strings


def toy_types(form: str) -> bytes:
    new_modules = form != "below-base"
    types = Types()
    integer, long, char = (types.integer(*one) for one in (("int", 4), ("long", 8), ("char", 1)))
    links = types.record("list_head", 16, [("next", long, 0), ("prev", long, 8)])
    word16, word65 = types.array(char, 16), types.array(char, 65)
    pid = types.add(8, "pid_t", integer)  # typedef
    inner = types.record("", 4, [("pid", pid, 0), ("other", integer, 0)], kind=5)
    members = [
        ("state", integer, 0),
        ("", inner, 4),
        ("comm", word16, 8),
        ("stack_canary", long, 24),
    ]
    members += [("tasks", links, 64), ("thread_node", links, 80), ("signal", long, 96)]
    members += [("real_parent", long, 104), ("tgid", integer, 112), ("flags", integer, 116)]
    thread = types.record("thread_struct", 8, [("sp", long, 0)])
    members += [("stack", long, 128), ("on_cpu", integer, 136), ("nvcsw", long, 144)]
    members += [("nivcsw", long, 152), ("thread", thread, 160), ("mm", long, 168)]
    types.record("task_struct", TASK_BYTES, members)
    types.record("pt_regs", 8 * len(SAVED), [(one, long, 8 * at) for at, one in enumerate(SAVED)])
    bits = UNWINDING[form]["bits"]
    fields = [("sp_offset", integer, 0, 16), ("bp_offset", integer, 16, 16)]
    fields += [("sp_reg", integer, 32, 4), ("bp_reg", integer, 36, 4), ("type", integer, 40, bits)]
    fields.append(("end" if bits == 2 else "signal", integer, 40 + bits, 1))
    types.record("orc_entry", 6, fields, bits=True)
    arch = [("num_orcs", integer, 0), ("orc_unwind_ip", long, 8), ("orc_unwind", long, 16)]
    architecture = types.record("mod_arch_specific", 24, arch)
    types.record("signal_struct", 24, [("thread_head", links, 8)])
    types.record("rq", 32, [("nr_running", integer, 0), ("cpu", integer, 8)])
    types.enumeration("toy_state", {"TOY_SLEEPS": 0, "TOY_RUNS": 7})
    types.enumeration("node_stat_item", {"NR_VM_NODE_STAT_ITEMS": 3})
    types.add(8, "atomic_long_t", long)  # typedef
    types.enumeration("", {"TOY_LOST": -1}, signed=True)
    types.record("flags", 4, [("low", integer, 0, 3), ("high", integer, 3, 5)], bits=True)
    names = types.record("new_utsname", 130, [("sysname", word65, 0), ("release", word65, 65)])
    types.record("uts_namespace", 138, [("name", names, 8)])
    layout = types.record("module_memory", 16, [("base", long, 0), ("size", integer, 8)])
    where = ("mem", types.array(layout, 2), 96) if new_modules else ("core_layout", layout, 96)
    name56 = types.array(char, 56)
    members = [("list", links, 8), ("name", name56, 24), ("kallsyms", long, 80), where]
    members.append(("arch", architecture, 128))
    types.record("module", 152, members)
    types.record(
        "mod_kallsyms", 24, [("symtab", long, 0), ("num_symtab", integer, 8), ("strtab", long, 16)]
    )
    _process_types(types, long, char)
    return types.data()


def _process_types(types: Types, long: int, char: int) -> None:
    """What processes have: mappings, and files with cached pages. toy_process.py makes one."""

    def record(record_name: str, size: int, **members: int | tuple[int, int]) -> int:
        return types.record(
            record_name,
            size,
            [
                (one, long, where) if isinstance(where, int) else (one, where[1], where[0])
                for one, where in members.items()
            ],
        )

    def words(count: int) -> int:
        return types.array(long, count)

    record("mm_struct", 24, pgd=0, mm_mt=(8, record("maple_tree", 16, ma_root=8)))
    record("maple_range_64", 256, parent=0, pivot=(8, words(15)), slot=(128, words(16)))
    record("maple_arange_64", 256, parent=0, pivot=(8, words(9)), slot=(80, words(10)))
    kinds = ("maple_dense", "maple_leaf_64", "maple_range_64", "maple_arange_64")
    types.enumeration("maple_type", {name: at for at, name in enumerate(kinds)})
    areas = ("vm_start", "vm_end", "vm_mm", "vm_flags", "vm_pgoff", "vm_file")
    record("vm_area_struct", 48, **{name: 8 * at for at, name in enumerate(areas)})
    path = record("path", 16, dentry=8)
    record("file", 32, f_path=(0, path), f_mapping=16, f_inode=24)
    record("dentry", 16, d_name=(0, record("qstr", 16, name=8)))
    record("inode", 16, i_ino=0, i_size=8)
    record("address_space", 16, i_pages=(0, record("xarray", 16, xa_head=8)))
    record("xa_node", 520, shift=(0, char), slots=(8, words(64)))
    record("page", 64, flags=0)


@dataclass
class ToyKernel:
    """What to build. `ram` is the result: change it, then save()."""

    form: str = "below-base"
    levels: int = 5
    pti: bool = True  # a pair of tables; else one, at a page whose number is odd
    cpus: int = 2
    probes: int | None = None  # what is active of the module's, where it is there at all
    probe_map: dict[str, Any] = field(default_factory=dict)  # what is wrong in the map of them
    release: str = RELEASE
    build_id: str = BUILD_ID
    symbols: dict[str, int] = field(default_factory=dict)  # run-time, as in /proc/kallsyms
    ram: bytearray = field(default_factory=lambda: bytearray(RAM_BYTES))

    def __post_init__(self) -> None:
        self._next = 0x1000
        self.image = LINKED + SHIFT
        self.phys_base = IMAGE_AT - (self.image - IMAGE_BASE)
        self.direct_map = DIRECT_MAP[self.levels]
        self._image_data()
        self._percpu()
        self._module()
        self._unwinding()
        if self.probes is not None:
            self._probes(self.probes)
        self._page_tables()
        self._kallsyms()
        self._note()

    def save(self, folder: Path, name: str = "ram") -> Path:
        path = folder / name
        zeros = bytes(BLOCK_BYTES)
        with path.open("wb") as file:
            file.truncate(len(self.ram))  # nearly all of it is zeros, which need not be written
            for at in range(0, len(self.ram), BLOCK_BYTES):
                if (block := self.ram[at : at + BLOCK_BYTES]) != zeros:
                    file.seek(at)
                    file.write(block)
        return path

    def physical(self, virtual: int) -> int:
        return virtual - IMAGE_BASE + self.phys_base

    def put(self, physical: int, data: bytes) -> None:
        self.ram[physical : physical + len(data)] = data

    def symbol(self, name: str, data: bytes, align: int = 8) -> int:
        """Put data in the image under a name; its virtual address."""
        self._next = (self._next + align - 1) // align * align
        virtual = self.image + self._next
        self.put(self.physical(virtual), data)
        self._next += len(data)
        self.symbols[name] = virtual
        return virtual

    def u64(self, name: str, value: int) -> int:
        return self.symbol(name, struct.pack("<Q", value & MASK))

    def _image_data(self) -> None:
        self.symbols |= {"_text": self.image, "_stext": self.image}
        self.symbols["schedule"] = self.image + 0x100
        self.symbols["schedule_timeout"] = self.image + 0x180
        self.symbols |= {"toy_bottom": self.image + 0x380, "toy_entry": self.image + 0x390}
        self.symbols["_etext"] = self.image + 0x400
        self.symbol("linux_banner", f"Linux version {self.release} (toy) #1\n\0".encode())
        uts = bytes(8) + b"Linux".ljust(65, b"\0") + self.release.encode().ljust(65, b"\0")
        self.symbol("init_uts_ns", uts)
        self._tasks()
        self.u64("page_offset_base", self.direct_map)
        self.u64("vmcoreinfo_note", self.direct_map + NOTE_AT)
        self.u64("max_pfn_mapped", RAM_BYTES // 4096)
        self.u64("vmemmap_base", VMEMMAP)
        self.u64("jiffies_64", 4711)
        self.symbol("vm_node_stat", struct.pack("<3Q", 5, 6, 7))
        self.symbol("nr_cpu_ids", struct.pack("<I", self.cpus))
        self.u64("__cpu_online_mask", (1 << self.cpus) - 1)
        self.u64("__cpu_possible_mask", (1 << self.cpus) - 1)
        start = self.symbol(
            "__start_notes", struct.pack("<III4s", 4, 20, 3, b"GNU\0") + bytes.fromhex(BUILD_ID)
        )
        self.symbols["__stop_notes"] = start + 36
        types = toy_types(self.form)
        self.symbols["__stop_BTF"] = self.symbol("__start_BTF", types) + len(types)

    def _tasks(self) -> None:
        """The idle task, a process of two threads, and a kernel thread, in their lists."""
        threads = {"init_task": (0, 0), "toy_server": (6, 6), "toy_worker": (7, 6)}
        threads["toy_kthread"] = (2, 2)
        for name, (pid, group) in threads.items():
            comm = "swapper/0" if not pid else name.removeprefix("toy_")
            task = struct.pack("<Ii16sQ", 0, pid, comm.encode(), CANARY).ljust(112, b"\0")
            task += struct.pack("<2I", group, 0x200000 * (pid == 2)) + bytes(8)
            stack = self.symbol("init_stack" if not pid else f"stack_{pid}", bytes(STACK_BYTES), 64)
            if not pid:
                self.symbols["__end_init_task"] = stack + STACK_BYTES
            sp = stack + STACK_BYTES - 0x100
            task += struct.pack("<QIIQQQQ", stack, not pid, 0, pid, 0, sp, 0)
            self.symbol(name, task)
            self.put(self.physical(sp), struct.pack("<14Q", *self._frames(pid)))
        for name in ("init_signal", "toy_signal", "toy_kernel_signal"):
            self.symbol(name, bytes(24))
        at = self.symbols
        pairs = [("init_task", "init_signal"), ("toy_server", "toy_signal")]
        pairs += [("toy_worker", "toy_signal"), ("toy_kthread", "toy_kernel_signal")]
        for task, signal in pairs:
            self.put(self.physical(at[task]) + 96, struct.pack("<2Q", at[signal], at["init_task"]))
        self.ring(*(at[name] + 64 for name in ("init_task", "toy_server", "toy_kthread")))
        self.ring(at["toy_signal"] + 8, at["toy_server"] + 80, at["toy_worker"] + 80)
        self.ring(at["toy_kernel_signal"] + 8, at["toy_kthread"] + 80)

    def _frames(self, pid: int) -> list[int]:
        """What a thread has pushed, which sleeps in schedule(), as its way there was."""
        at = self.symbols
        inner = [0] * 6 + [at["schedule"] + 0x10, 0, 0]
        if pid == 2:  # from a module, at the beginning of a kernel thread
            return [*inner, MODULES_VIRTUAL + 0x18, at["toy_bottom"] + 1, 0, 0, 0]
        if pid == 7:  # from user mode, whose registers lie above
            return [*inner, at["toy_entry"] + 1, 0x401000, 0x33, 0x7FFF0000, 0]
        return [*inner, at["schedule_timeout"] + 0x10, 0, at["toy_bottom"] + 1, 0, 0]

    def _unwinding(self) -> None:
        """The unwind tables of the kernel and of the module."""
        how, at = UNWINDING[self.form], self.symbols
        call, end, regs = how["call"], how["end"], how["regs"]
        rules = [
            (at["schedule"], how["sp"], 8, call),
            (at["schedule"] + 8, how["sp"], 24, call),
            (at["schedule_timeout"], how["sp"], 8, call),
            (at["schedule_timeout"] + 8, how["sp"], 16, call),
            (at["toy_bottom"], end[0], 0, end[1] if how["bits"] == 3 else 4),
            (at["toy_entry"], how["sp"], 0, regs),
        ]
        entries = b"".join(
            struct.pack("<hhBB", offset, 0, register, kind) for _, register, offset, kind in rules
        )
        start = self.symbol("__start_orc_unwind_ip", bytes(4 * len(rules)))
        at["__stop_orc_unwind_ip"] = start + 4 * len(rules)
        places = (rule[0] - start - 4 * number for number, rule in enumerate(rules))
        self.put(self.physical(start), struct.pack(f"<{len(rules)}i", *places))
        self.symbol("__start_orc_unwind", entries)
        ip, table = MODULES_VIRTUAL + 0xD00, MODULES_VIRTUAL + 0xD40
        self.put(MODULE_AT + 0x480, struct.pack("<IIQQ", 1, 0, ip, table))
        self.put(MODULE_AT + 0xD00, struct.pack("<i", MODULES_VIRTUAL + 0x10 - ip))
        self.put(MODULE_AT + 0xD40, struct.pack("<hhBB", 8, 0, how["sp"], call))

    def ring(self, *links: int) -> None:
        """Make a list of the links at these virtual addresses of the image."""
        for place, following in zip(links, (*links[1:], links[0]), strict=True):
            self.put(self.physical(place), struct.pack("<Q", following))

    def _percpu(self) -> None:
        new = self.form != "below-base"  # per-CPU symbols are addresses, not offsets
        first = self.image + 0x1C0000 if new else 0
        self.symbols |= {"this_cpu_off": first + 0x40, "runqueues": first + 0x80}
        self.symbols |= {"__preempt_count": first + 0x60, "current_task": first + 0x68}
        bases = []
        for cpu in range(self.cpus):
            at = PERCPU_AT + cpu * PERCPU_BYTES
            bases.append((self.direct_map + at - first) & MASK)
            self.put(at + 0x40, struct.pack("<Q", bases[-1]))
            self.put(at + 0x60, struct.pack("<QQ", 0x100 * cpu, self.symbols["init_task"]))
            self.put(at + 0x80, struct.pack("<IIII", 3 + cpu, 0, cpu, 0))
        self.symbol("__per_cpu_offset", struct.pack(f"<{self.cpus}Q", *bases))

    def _module(self) -> None:
        """One module with one function, in memory of its own that page tables lead to."""
        head = self.u64("modules", 0)
        module, here = MODULES_VIRTUAL + 0x400, MODULE_AT + 0x400
        self.put(self.physical(head), struct.pack("<Q", module + 8))
        self.put(here, struct.pack("<QQQ56sQ", 0, head, head, b"toy_driver", module + 0x200))
        layout = struct.pack("<QII", MODULES_VIRTUAL, 0x1000, 0)
        self.put(here + 96, layout)
        strings, table = b"\0toy_open\0toy_close\0", module + 0x300
        symbols = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
        symbols += struct.pack("<IBBHQQ", 1, 0, 0, 1, MODULES_VIRTUAL + 0x10, 8)
        symbols += struct.pack("<IBBHQQ", 10, 0, 0, 1, MODULES_VIRTUAL + 0x80, 8)
        self.put(here + 0x200, struct.pack("<QIIQ", table, 3, 0, table + 0x80))
        self.put(here + 0x300, symbols.ljust(0x80, b"\0") + strings)

    def _probes(self, active: int) -> None:
        """The module with probes, in the same page: its map, its sites, and a record a CPU."""
        module, here = MODULES_VIRTUAL + 0x900, MODULE_AT + 0x900
        self.map_at, self.sites_at = MODULE_AT + 0xB00, MODULE_AT + 0xC00
        head = self.symbols["modules"]
        first = MODULES_VIRTUAL + 0x400
        self.put(self.physical(head), struct.pack("<Q", module + 8))
        self.put(here, struct.pack("<QQQ56sQ", 0, first + 8, head, b"trapless", module + 0x100))
        self.put(here + 96, struct.pack("<QII", module + 0x200, 0x100, 0))
        self.put(here + 0x100, struct.pack("<QIIQ", module + 0x140, 2, 0, module + 0x180))
        symbol = struct.pack("<IBBHQQ", 1, 0, 0, 1, module + 0x200, 8)
        self.put(here + 0x140, bytes(24) + symbol)
        self.put(here + 0x180, b"\0tlk_probe_map\0")
        percpu = self.symbols["this_cpu_off"] - 0x40
        said = {"magic": MAGIC, "size": MAP.size, "active": active, "sites": len(CODE_SITES)}
        said |= {"record_bytes": 64, "records": percpu + 0x100, "site": module + 0x300}
        self._map_members = dict.fromkeys(MAP_MEMBERS, 0)
        self.put_map(said | self.probe_map)
        self.put(self.sites_at, np.array([(at, 0, 5) for at in CODE_SITES], SITE).tobytes())
        for cpu in range(self.cpus):
            state = 1 if cpu else CODE_SITES[0]  # user mode, but for the first
            at = PERCPU_AT + cpu * PERCPU_BYTES
            self.put(at + 0x100, struct.pack("<QI", state, 1))

    def put_map(self, changes: dict[str, Any]) -> None:
        """Write the module's map, with these members and the others as they were."""
        self._map_members |= changes
        self.put(self.map_at, MAP.pack(*self._map_members.values()))

    def _page_tables(self) -> None:
        self._next = 0x100000 if self.pti else 0x101000
        self._tables = {}
        root = self.symbol("init_top_pgt", bytes(8192 if self.pti else 4096), 4096)
        self.root = self.physical(root)
        self._map(self.image, IMAGE_AT, 2)
        for physical in range(0, RAM_BYTES, 2 << 20):
            self._map(self.direct_map + physical, physical, 2)
        self._map(MODULES_VIRTUAL, MODULE_AT, 1)

    def _map(self, virtual: int, physical: int, leaf: int) -> None:
        """Map one page; `leaf` is the level whose entry is the page."""
        table = self.root
        for level in range(self.levels, leaf, -1):
            at = table + 8 * (virtual >> 12 + 9 * (level - 1) & 511)
            (entry,) = struct.unpack_from("<Q", self.ram, at)
            if not entry:
                fresh = (IMAGE_AT + self._next + 4095) // 4096 * 4096
                self._next = fresh + 4096 - IMAGE_AT
                entry = fresh | 0x63
                self.put(at, struct.pack("<Q", entry))
            table = entry & ~0xFFF
        at = table + 8 * (virtual >> 12 + 9 * (leaf - 1) & 511)
        self.put(at, struct.pack("<Q", physical | (0x8000_0000_0000_00E3 if leaf == 2 else 0x63)))

    def _kallsyms(self) -> None:
        self._next = 0x140000
        local = {"toy_static": self.image + 0x300}
        names = ["_end", *(f"kallsyms_{one}" for one in ("names", "num_syms", "offsets"))]
        names += ["kallsyms_token_table", "kallsyms_token_index", "kallsyms_relative_base"]
        entries = sorted((self.symbols | local | dict.fromkeys(names, self.image)).items())
        data = b"".join(_encoded(("t" if name in local else "T") + name) for name, _ in entries)
        data += _encoded("ttoy_static")  # a second of that name
        self.symbol("kallsyms_num_syms", struct.pack("<I", len(entries) + 1))
        self.symbol("kallsyms_names", data)
        tokens = [bytes([i]) if 32 < i < 127 else b"?" for i in range(256)]
        tokens[WORD] = b"schedule"
        starts = [0, *accumulate(len(token) + 1 for token in tokens[:-1])]
        self.symbol("kallsyms_token_table", b"\0".join(tokens) + b"\0")
        self.symbol("kallsyms_token_index", struct.pack("<256H", *starts))
        at = self.symbol("kallsyms_offsets", bytes(4 * (len(entries) + 1)))
        base = self.image
        if self.form != "from-place":
            self.u64("kallsyms_relative_base", base)
        self.symbols["_end"] = self.image + IMAGE_BYTES
        values = [self.symbols.get(name, local.get(name, 0)) for name, _ in entries]
        offsets = b""
        for index, value in enumerate([*values, self.image + 0x340]):
            if self.form == "below-base":
                number = base - 1 - value if value >= 1 << 63 else value
            else:
                number = value - base if self.form == "from-base" else value - at - 4 * index
            offsets += struct.pack("<i", number if value else 0)
        self.put(self.physical(at), offsets)

    def _note(self) -> None:
        lines = [
            f"OSRELEASE={self.release}",
            f"BUILD-ID={self.build_id}",
            "PAGESIZE=4096",
            *(f"SYMBOL({name})={self.symbols[name]:x}" for name in ("_stext", "init_uts_ns")),
            *(
                f"SYMBOL({name})={self.symbols['init_top_pgt']:x}"
                for name in ("swapper_pg_dir", "init_top_pgt")
            ),
            *(
                f"SYMBOL({name})={value:x}"
                for name, value in self.symbols.items()
                if name.startswith("kallsyms_")
            ),
            f"NUMBER(phys_base)={self.phys_base}",
            f"NUMBER(pgtable_l5_enabled)={int(self.levels == 5)}",
            f"KERNELOFFSET={SHIFT:x}",
            "NUMBER(sme_mask)=0",
        ]
        self.put_note("\n".join(lines) + "\n")

    def put_note(self, text: str, at: int = NOTE_AT) -> None:
        header = struct.pack("<III", 11, len(text), 0) + b"VMCOREINFO\0\0"
        self.put(at, bytes(4096))
        self.put(at, header + text.encode())

    def note(self) -> str:
        (length,) = struct.unpack_from("<I", self.ram, NOTE_AT + 4)
        return bytes(self.ram[NOTE_AT + 24 : NOTE_AT + 24 + length]).decode()


def _encoded(name: str) -> bytes:
    """A name in tokens: one a letter, and one for a word that has its own."""
    data = bytes(name.replace("schedule", chr(WORD)), "latin-1")
    return bytes([len(data)]) + data
