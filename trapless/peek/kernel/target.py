# SPDX-License-Identifier: GPL-2.0-only
"""The target: a kernel that was found in a memory, checked, and may be asked for anything.

Owns opening and closing it, names for addresses of the kernel and of its modules, and noticing that
the machine was restarted. Names are resolved by name_resolver.py. Everything is read from the
target's memory alone; nothing in the target helps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel import checks, tasks
from trapless.peek.kernel.image import KernelImage, locate
from trapless.peek.kernel.kernel_stacks import CpuStack, ThreadStack, Unwinder
from trapless.peek.kernel.loaded_modules import Modules
from trapless.peek.kernel.memories.images import open_memory
from trapless.peek.kernel.memory import FileMemory
from trapless.peek.kernel.name_resolver import Resolver
from trapless.peek.kernel.tasks import Task
from trapless.peek.kernel.unwinding.frames import CpuRegisters
from trapless.peek.kernel.unwinding.x86_frames import USER


@contextmanager
def closed_on_error(memories: Sequence[FileMemory]) -> Iterator[None]:
    """A block that takes over these memories: if it fails, they are closed."""
    try:
        yield
    except BaseException:
        for memory in memories:
            memory.close()
        raise


class Target(Resolver):
    """One running (or saved) kernel. Use it as a context manager, or call close()."""

    def __init__(self, image: KernelImage, owned: Sequence[FileMemory] = ()) -> None:
        with limits.within(limits.Budget(limits.OPENING)):
            super().__init__(image)
            checks.run(self)
        self._owned = tuple(owned)
        self._identity = self._fingerprint()

    @classmethod
    def open(cls, path: Path, hole: int | None = None) -> Target:
        """The kernel in a RAM file, a raw image or an ELF core.

        `hole` is the physical address at which RAM below 4 GiB ends, as in open_memory(). PeekError
        says why a file has no kernel that can be read.
        """
        return cls.of(open_memory(path, hole))

    @classmethod
    def of(cls, layouts: Sequence[FileMemory]) -> Target:
        """The kernel in a memory, which is given once for each layout that it may have.

        The target closes the layouts, and they are closed where no kernel is found.
        """
        with closed_on_error(layouts):
            return cls(locate(layouts), layouts)

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def again(self) -> Target:
        """The kernel that is in the same memory now."""
        return type(self).of(self.layouts())

    def layouts(self) -> list[FileMemory]:
        """The memory in each layout that it may have, with descriptors of its own."""
        return [memory.duplicate() for memory in self._owned]

    @property
    def identity(self) -> tuple[str, bytes, bytes]:
        """Values that differ between two boots of one kernel."""
        return self._identity

    def close(self) -> None:
        """Close the files; every later read is an error."""
        for memory in self._owned:
            memory.close()

    @cached_property
    def modules(self) -> Modules:
        """The modules that the target has loaded.

        The list is read again when an address is in none of them.
        """
        return Modules(self)

    def module_symbol(self, module: str, name: str, *, again: bool = False) -> int | None:
        """The address of a symbol of a module, or None; `again` reads the list of modules again."""
        if again:
            self.modules.refresh()
        return self.modules.symbol(module, name)

    def threads(self) -> dict[int, Task]:
        """All threads by pid, as tasks.py reads them."""
        return tasks.threads(self)

    @cached_property
    def unwinder(self) -> Unwinder:
        """Unwinds stacks by the kernel's own tables, in this process."""
        return Unwinder(self, self.modules)

    def thread_stacks(self) -> list[ThreadStack]:
        """All threads with their stacks, but those on a CPU, as kernel_stacks.py reads them."""
        return self.unwinder.threads()

    def cpu_stacks(self, registers: Sequence[CpuRegisters]) -> list[CpuStack]:
        """The stacks of CPUs that stand still, by their registers."""
        return self.unwinder.cpus(registers)

    def saved_registers(self) -> list[CpuRegisters]:
        """The registers of each CPU at the moment of the dump, where an image has them."""
        memory = self.memory
        saved = memory.registers if isinstance(memory, FileMemory) else ()
        return [
            CpuRegisters(cpu, bool(values.get("cs", 0) & USER), dict(values))
            for cpu, values in enumerate(saved)
        ]

    def name_of(self, address: int) -> GuestText:
        """A virtual address for people: "schedule+0x5", "e1000_intr+0x40 [e1000]", "0x1234"."""
        symbol = self.symbols.at(address)
        if symbol is not None and self.in_image(address):
            return _with_distance(*symbol)
        module = self.modules.at(address)
        if module is None:
            return GuestText(f"{address:#x}".encode())
        return GuestText.stored(f"{_with_distance(*module.at(address))} [{module.name}]")

    def check_same(self) -> None:
        """Raise PeekError where the target was seen to restart since it was opened, or is gone.

        A kernel placed elsewhere may leave all of the old one: sampling/boots.py notices that, too.
        """
        try:
            same = self._fingerprint() == self._identity
        except PeekError:
            self.check_memory()
            same = False  # the firmware or the next kernel has overwritten a part of it
        if not same:
            raise PeekError(
                f"{self.memory.name}: the target was restarted since it was opened; open it again"
            )

    def check_memory(self) -> None:
        """Raise PeekError where the memory itself cannot be read up to its end any more."""
        try:
            for region in self.memory.regions():
                self.memory.read(region.end - 1, 1)
        except PeekError as error:
            raise PeekError(f"{self.memory.name}: the target is gone: {error}") from error

    def _fingerprint(self) -> tuple[str, bytes, bytes]:
        """Values that differ between two boots of one kernel."""
        # A physical address needs no page tables, which a restart may have overwritten.
        note = self.memory.read(self.info.address, 64)
        canary = b""
        if self.has_member("task_struct", "stack_canary"):
            where = self.symbol("init_task") + self.offset("task_struct", "stack_canary")
            canary = self.read(where, 8)
        start = self.read(self.symbol(self.processor.map_base), 8)
        return note.hex(), canary, start


def _with_distance(name: GuestText, distance: int) -> GuestText:
    return GuestText.stored(f"{name}+{distance:#x}") if distance else name


def function_of(name: str) -> str:
    """The function in the name of a place, with its module.

    >>> function_of("e1000_intr+0x40 [e1000]"), function_of("schedule")
    ('e1000_intr [e1000]', 'schedule')
    """
    symbol, _, module = name.partition(" ")
    return f"{symbol.split('+')[0]} {module}".strip()
