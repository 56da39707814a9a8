# SPDX-License-Identifier: GPL-2.0-only
"""The face of an observed kernel: its symbols, types, per-CPU data and memory, by name.

Owns what one may ask of a target. How a kernel is found is in image.py, what is checked before it
is believed in checks.py. Everything is resolved from the target's memory alone; nothing in the
target helps or notices.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from trapless.peek.errors import PeekError
from trapless.peek.kernel import checks
from trapless.peek.kernel.btf import Btf, Place
from trapless.peek.kernel.image import IMAGE_BASE, KernelImage, locate
from trapless.peek.kernel.kallsyms import Symbols
from trapless.peek.kernel.memory import PAGE_BYTES, FileMemory, Memory, open_memory
from trapless.peek.kernel.modules import Modules
from trapless.peek.kernel.paging import PageTables
from trapless.peek.kernel.vmcoreinfo import Vmcoreinfo

BTF_BYTES_MAX = 64 << 20
CPUS_MAX = 8192
MASK = (1 << 64) - 1
STRING_BYTES_MAX = 4096


class Target:
    """One running (or saved) kernel. Use as a context manager, or close()."""

    def __init__(self, image: KernelImage, owned: Sequence[FileMemory] = ()) -> None:
        self._image, self._owned = image, tuple(owned)
        self.types = self._read_types()
        checks.run(self)
        self._identity = self._fingerprint()

    @classmethod
    def open(cls, path: Path, hole: int | None = None) -> Target:
        """The kernel in a RAM file, raw image or ELF core; `hole` as in open_memory()."""
        layouts = open_memory(path, hole)
        try:
            return cls(locate(layouts), layouts)
        except BaseException:
            for memory in layouts:
                memory.close()
            raise

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory back."""
        for memory in self._owned:
            memory.close()

    # ---- What runs there -------------------------------------------------------------------------

    @property
    def memory(self) -> Memory:
        """Physical memory."""
        return self._image.memory

    @property
    def info(self) -> Vmcoreinfo:
        return self._image.info

    @property
    def symbols(self) -> Symbols:
        return self._image.symbols

    @property
    def page_tables(self) -> PageTables:
        """Of the kernel."""
        return self._image.tables

    @property
    def release(self) -> str:
        """As `uname -r` says in the target."""
        return self.info.release

    @property
    def build_id(self) -> str:
        return self.info.build_id

    @cached_property
    def banner(self) -> str:
        """As /proc/version says in the target."""
        return self.read_string(self.symbol("linux_banner"), 512).strip()

    def check_same(self) -> None:
        """Raise PeekError when what was resolved no longer holds: a reboot, or no machine."""
        try:
            same = self._fingerprint() == self._identity
        except PeekError:
            self._check_memory()
            same = False  # what the next kernel or the firmware has written over, so far
        if not same:
            raise PeekError(
                f"{self.memory.name}: the target was restarted since it was opened; open it again"
            )

    def _check_memory(self) -> None:
        """Raise PeekError when there is not even memory any more, up to its end."""
        try:
            for region in self.memory.regions():
                self.memory.read(region.end - 1, 1)
        except PeekError as error:
            raise PeekError(f"{self.memory.name}: the target is gone: {error}") from error

    def _fingerprint(self) -> tuple[str, bytes, bytes]:
        """What two boots of one kernel do not share."""
        # Read by its physical address, so that not even the page tables need to be there still.
        note = self.memory.read(self.info.address, 64)
        canary = b""
        if self.has_member("task_struct", "stack_canary"):
            where = self.symbol("init_task") + self.offset("task_struct", "stack_canary")
            canary = self.read(where, 8)
        start = self.read(self.symbol("page_offset_base"), 8)
        return note.hex(), canary, start

    # ---- Names -----------------------------------------------------------------------------------

    def symbol(self, name: str) -> int:
        """The virtual address of a symbol of the kernel; of per-CPU data see percpu()."""
        return self.symbols.address(name)

    def has_symbol(self, name: str) -> bool:
        return self.symbols.has(name)

    def name_of(self, address: int) -> str:
        """What is at a virtual address: "schedule+0x12", "e1000_intr+0x40 [e1000]", "0x1234"."""
        found = self.symbols.at(address)
        if found is not None and self.in_image(address):
            return _with_distance(*found)
        module = self.modules.at(address)
        if module is None:
            return f"{address:#x}"
        name, distance = module.at(address)
        return f"{_with_distance(name, distance)} [{module.name}]"

    def in_image(self, address: int) -> bool:
        """Whether a virtual address is inside the kernel's image."""
        return self.symbol("_text") <= address < self.symbol("_end")

    @cached_property
    def modules(self) -> Modules:
        """Modules that the target has loaded; looked at again when an address is in none."""
        return Modules(self)

    # ---- Types -----------------------------------------------------------------------------------

    def place(self, record: str, path: str) -> Place:
        """Where a member is, and how large: `path` is like "se.exec_start" or "mem[0].base"."""
        return self.types.place(record, path)

    def offset(self, record: str, path: str) -> int:
        """Bytes from the beginning of a structure to a member that is no bit field."""
        place = self.types.place(record, path)
        if place.bits:
            raise PeekError(f"{record}.{path} is a bit field; ask place() for it")
        return place.offset

    def sizeof(self, record: str) -> int:
        """Bytes of a structure."""
        sizes = {one.size for one in self.types.record(record)}
        if len(sizes) > 1:
            raise PeekError(f"several structures {record!r} in this kernel differ in size")
        return sizes.pop()

    def has_member(self, record: str, path: str) -> bool:
        """Whether the target's kernel has it: the way to ask for a feature."""
        try:
            self.types.place(record, path)
        except PeekError:
            return False
        return True

    def _read_types(self) -> Btf:
        if not (self.symbols.has("__start_BTF") and self.symbols.has("__stop_BTF")):
            raise PeekError(
                f"{self.release} carries no types: it was built without CONFIG_DEBUG_INFO_BTF"
            )
        start = self.symbol("__start_BTF")
        length = self.symbol("__stop_BTF") - start
        if not 0 < length <= BTF_BYTES_MAX:
            raise PeekError(f"the kernel's types take {length} bytes: its symbols are damaged")
        return Btf(self.read(start, length))

    # ---- CPUs ------------------------------------------------------------------------------------

    @property
    def cpus_online(self) -> tuple[int, ...]:
        """Numbers of the CPUs that are online at this moment."""
        return self._cpus("__cpu_online_mask")

    @cached_property
    def cpus_possible(self) -> tuple[int, ...]:
        """Numbers of the CPUs that may ever come online: those that have per-CPU data."""
        return self._cpus("__cpu_possible_mask")

    def _cpus(self, mask_name: str) -> tuple[int, ...]:
        (count,) = struct.unpack("<I", self.read(self.symbol("nr_cpu_ids"), 4))
        if not 0 < count <= CPUS_MAX:
            raise PeekError(f"the kernel claims {count} CPUs: the image is damaged")
        mask = int.from_bytes(self.read(self.symbol(mask_name), (count + 63) // 64 * 8), "little")
        return tuple(cpu for cpu in range(count) if mask >> cpu & 1)

    @cached_property
    def percpu_bases(self) -> dict[int, int]:
        """What is added to a per-CPU symbol, for each possible CPU."""
        table = self.symbol("__per_cpu_offset")
        return {cpu: self.read_u64(table + 8 * cpu) for cpu in self.cpus_possible}

    def percpu(self, name: str, cpu: int) -> int:
        """The virtual address of a CPU's own copy of a per-CPU variable."""
        if cpu not in self.percpu_bases:
            possible = ", ".join(map(str, self.cpus_possible))
            raise PeekError(f"the target has no CPU {cpu}; it has {possible}", status=2)
        return (self.symbol(name) + self.percpu_bases[cpu]) & MASK

    # ---- Memory ----------------------------------------------------------------------------------

    @cached_property
    def direct_map(self) -> int:
        """The virtual address of physical address 0 in the kernel's map of all memory."""
        return self.read_u64(self.symbol("page_offset_base"))

    @property
    def image_shift(self) -> int:
        """What, added to an address inside the kernel's image, gives the physical address."""
        return self.info.number("phys_base") - IMAGE_BASE

    def physical(self, virtual: int) -> int:
        """The physical address behind a virtual one of the kernel, by its page tables."""
        return self.page_tables.physical(virtual)[0]

    def read(self, virtual: int, length: int) -> bytes:
        """`length` bytes from a virtual address of the kernel, all of them, or PeekError."""
        return self._image.read(virtual, length)

    def read_u64(self, virtual: int) -> int:
        return self._image.read_u64(virtual)

    def read_string(self, virtual: int, limit: int = STRING_BYTES_MAX) -> str:
        """The text at a virtual address, up to its zero byte or `limit`."""
        text = b""
        while len(text) < limit and b"\0" not in text:  # what follows may not be mapped
            rest = PAGE_BYTES - (virtual + len(text)) % PAGE_BYTES
            text += self.read(virtual + len(text), min(rest, limit - len(text)))
        return text.split(b"\0")[0].decode("utf-8", "replace")

    def memory_end(self) -> int:
        """The end of the memory that the target's kernel knows of, physical."""
        return self._image.memory_end()


def _with_distance(name: str, distance: int) -> str:
    return f"{name}+{distance:#x}" if distance else name
