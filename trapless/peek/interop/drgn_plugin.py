# SPDX-License-Identifier: GPL-2.0-only
"""A plug-in for drgn: gives a kernel without debug symbols its types and symbols from its memory.

Owns the hook, which drgn calls for each program, and the memory of a target that drgn has opened: a
core, the running kernel, a virtual machine. Nothing is read until drgn finds a name in no other
way. It runs in drgn's own process, without a sandbox: use it for guests that you trust.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import drgn

from trapless.peek.errors import PeekError
from trapless.peek.kernel.memory import Region

if TYPE_CHECKING:
    from trapless.peek.interop.drgn_program import Finders

NAME = "trapless"
PHYSICAL_MAX = 1 << 52
ARCHITECTURES = (drgn.Architecture.X86_64, drgn.Architecture.AARCH64)
logger = logging.getLogger(f"drgn.{NAME}")


def drgn_prog_set(prog: drgn.Program) -> None:
    """Offer what the memory has, behind drgn's own ways; drgn calls this by its name."""
    platform = prog.platform
    is_known = platform is not None and platform.arch in ARCHITECTURES
    if not (is_known and prog.flags & drgn.ProgramFlags.IS_LINUX_KERNEL):
        return
    lazy = _LazyFinders(prog, prog["VMCOREINFO"].string_())
    prog.register_type_finder(NAME, lazy.type, enable_index=-1)
    prog.register_object_finder(NAME, lazy.object, enable_index=-1)
    prog.register_symbol_finder(NAME, lazy.symbols, enable_index=-1)


class _ProgramMemory:
    """The physical memory of a program's target."""

    def __init__(self, prog: drgn.Program) -> None:
        self._prog, self.name = prog, prog.core_dump_path or "the target"
        self.size = PHYSICAL_MAX  # until the kernel says where its memory ends

    def regions(self) -> Sequence[Region]:
        return [Region(0, self.size, 0)]

    def populated(self) -> Iterator[tuple[int, int]]:
        yield 0, self.size

    def read(self, address: int, length: int) -> bytes:
        try:
            return bytes(self._prog.read(address, length, physical=True))
        except (drgn.FaultError, OSError) as error:
            raise PeekError(f"{self.name}: {error}") from error

    def read_all(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read(*place) for place in places]


class _LazyFinders:
    """Opens the kernel at the first question that drgn cannot answer."""

    def __init__(self, prog: drgn.Program, note: bytes) -> None:
        self._prog, self._note = prog, note
        self._opened: Finders | None = None
        self._is_asked = False

    def type(self, *question: Any) -> drgn.Type | None:
        finders = self._finders()
        return finders.type(*question) if finders else None

    def object(self, *question: Any) -> drgn.Object | None:
        finders = self._finders()
        return finders.object(*question) if finders else None

    def symbols(self, *question: Any) -> Sequence[drgn.Symbol]:
        finders = self._finders()
        return finders.symbols(*question) if finders else []

    def _finders(self) -> Finders | None:
        if self._has_debug_symbols():
            return None
        if not self._is_asked:
            self._is_asked = True  # also while it is being opened
            from trapless.peek.interop.drgn_program import Finders
            from trapless.peek.kernel import image
            from trapless.peek.kernel.target import Target
            from trapless.peek.kernel.vmcoreinfo import Vmcoreinfo

            try:
                memory = _ProgramMemory(self._prog)
                found = image.described(memory, Vmcoreinfo.of(self._note))
                memory.size = found.memory_end()
                self._opened = Finders(self._prog, Target(found))
            except PeekError as error:
                logger.warning("no types and symbols from the kernel's own memory: %s", error)
        return self._opened

    def _has_debug_symbols(self) -> bool:
        try:
            status = self._prog.main_module().debug_file_status
        except LookupError:
            return False
        return bool(status == drgn.ModuleFileStatus.HAVE)
