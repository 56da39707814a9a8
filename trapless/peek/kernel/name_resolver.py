# SPDX-License-Identifier: GPL-2.0-only
"""Resolves names in one kernel: symbols, members of structures, per-CPU variables, addresses.

Owns the questions that one kernel's memory, page tables, symbols and types answer together. It
believes them: image.py has found the kernel, and checks.py compares what the kernel says.
"""

from __future__ import annotations

import struct
from functools import cached_property
from typing import Protocol

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.btf import Btf, Place
from trapless.peek.kernel.guest_processor import X86_64
from trapless.peek.kernel.image import KernelImage
from trapless.peek.kernel.kallsyms import MASK
from trapless.peek.kernel.memory import PAGE_BYTES


class Types(Protocol):
    """The types of a kernel, as btf.py describes them, wherever they are."""

    def place(self, record: str, path: str) -> Place: ...

    def sizes(self, record: str) -> set[int]: ...

    def enumerator(self, name: str) -> tuple[int, int] | None: ...


class Resolver(KernelImage):
    """One kernel by its names. `types`: the kernel's types, read when the resolver is made.

    Each question reads the memory of this moment, and raises PeekError where the kernel does not
    have the name or the address. Several threads may ask at the same time.
    """

    def __init__(self, image: KernelImage) -> None:
        super().__init__(
            image.memory, image.info, image.processor, image.page_tables, image.symbols
        )
        self.types: Types = self._read_types()

    @property
    def release(self) -> GuestText:
        """The kernel's release, as `uname -r` prints it in the target."""
        return self.info.release

    @property
    def build_id(self) -> str:
        """The build-id in hexadecimal; empty where the kernel has none."""
        return self.info.build_id

    def need_x86_64(self, command: str) -> None:
        """Raise PeekError where a command cannot be used with this kernel's processor."""
        if self.processor.name != X86_64:
            raise PeekError(
                f"{self.memory.name} has {self.release}, a kernel of {self.processor.name}: "
                f"`peek {command}` works on machines of {X86_64} alone"
            )

    @cached_property
    def banner(self) -> GuestText:
        """The kernel's version line, as /proc/version has it in the target."""
        text = self._bytes_at(self.symbol("linux_banner"), limits.TEXT_CHARS_MAX)
        return GuestText(text.rstrip(b"\n"))

    # ---- Symbols ---------------------------------------------------------------------------------

    def symbol(self, name: str) -> int:
        """The virtual address of a symbol of the kernel, or a per-CPU variable's offset."""
        return self.symbols.address(name)

    def has_symbol(self, name: str) -> bool:
        """Whether the kernel has a symbol of that name."""
        return self.symbols.has(name)

    def in_image(self, address: int) -> bool:
        """Whether a virtual address is inside the kernel's image."""
        return self.symbol("_text") <= address < self.symbol("_end")

    # ---- Types -----------------------------------------------------------------------------------

    @property
    def btf(self) -> Btf:
        """All types, which only this process's own reading has; PeekError in a sandbox."""
        if not isinstance(self.types, Btf):
            raise PeekError("the target's types are in a sandbox: open it with Target.open()")
        return self.types

    def _read_types(self) -> Btf:
        if not (self.symbols.has("__start_BTF") and self.symbols.has("__stop_BTF")):
            raise PeekError(
                f"{self.release} carries no types: it was built without CONFIG_DEBUG_INFO_BTF"
            )
        start = self.symbol("__start_BTF")
        length = self.symbol("__stop_BTF") - start
        if not 0 < length <= limits.TYPES_BYTES_MAX:
            raise PeekError(f"the kernel's types take {length} bytes: its symbols are damaged")
        return Btf(self.read(start, length))

    def place(self, record: str, path: str) -> Place:
        """Where a member of a structure is, and its size in bytes.

        `path` is like "se.exec_start" or "mem[0].base".
        """
        return self.types.place(record, path)

    def offset(self, record: str, path: str) -> int:
        """The bytes from the beginning of a structure to a member that is not a bit field."""
        place = self.types.place(record, path)
        if place.bits:
            raise PeekError(f"{record}.{path} is a bit field; ask place() for it")
        return place.offset

    def sizeof(self, record: str) -> int:
        """The size of a structure in bytes."""
        sizes = self.types.sizes(record)
        if len(sizes) > 1:
            raise PeekError(f"several structures {record!r} in this kernel differ in size")
        return sizes.pop()

    def has_member(self, record: str, path: str) -> bool:
        """Whether the kernel has a member. Code asks so for features, never for versions."""
        try:
            self.types.place(record, path)
        except PeekError:
            return False
        return True

    # ---- CPUs ------------------------------------------------------------------------------------

    @property
    def cpus_online(self) -> tuple[int, ...]:
        """The numbers of the CPUs that are online at this moment."""
        return self._cpus("__cpu_online_mask")

    @cached_property
    def cpus_possible(self) -> tuple[int, ...]:
        """The numbers of the CPUs that may ever come online: those that have per-CPU data."""
        return self._cpus("__cpu_possible_mask")

    def _cpus(self, mask_name: str) -> tuple[int, ...]:
        (count,) = struct.unpack("<I", self.read(self.symbol("nr_cpu_ids"), 4))
        if not 0 < count <= limits.CPUS_MAX:
            raise PeekError(f"the kernel claims {count} CPUs: the image is damaged")
        mask = int.from_bytes(self.read(self.symbol(mask_name), (count + 63) // 64 * 8), "little")
        return tuple(cpu for cpu in range(count) if mask >> cpu & 1)

    @cached_property
    def percpu_bases(self) -> dict[int, int]:
        """For each possible CPU, the number that is added to the symbol of a per-CPU variable."""
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
        known = self.processor.direct_map
        return self.read_u64(self.symbol(self.processor.map_base)) if known is None else known

    @property
    def image_shift(self) -> int:
        """The number that turns a virtual address inside the image into a physical one."""
        return self.processor.image_shift

    def physical(self, virtual: int) -> int:
        """The physical address of a virtual address, by the kernel's page tables."""
        return self.page_tables.physical(virtual)[0]

    def read_string(self, virtual: int, limit: int = limits.STRING_BYTES_MAX) -> GuestText:
        """The text at a virtual address, up to its zero byte or to `limit` bytes."""
        return GuestText(self._bytes_at(virtual, limit))

    def _bytes_at(self, virtual: int, limit: int) -> bytes:
        text = b""
        while len(text) < limit and b"\0" not in text:  # the next page may not be mapped
            rest = PAGE_BYTES - (virtual + len(text)) % PAGE_BYTES
            text += self.read(virtual + len(text), min(rest, limit - len(text)))
        return text.split(b"\0")[0]
