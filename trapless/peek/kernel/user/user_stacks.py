# SPDX-License-Identifier: GPL-2.0-only
"""Walks stacks of user mode by their frame pointers, and names their functions.

Owns the walk, which begins at the registers that a thread had when it entered the kernel or that a
stopped CPU has, and what is kept between two walks: the functions of files. A process writes its
own stack, so nothing in it is believed: each walk has a bound of frames, all of them together have
a budget of their own, and code is only what is mapped so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.guest_processor import NotMappedError, PageTables
from trapless.peek.kernel.memory import PAGE_BYTES
from trapless.peek.kernel.name_resolver import Resolver
from trapless.peek.kernel.user.cached_file import CachedFiles, FileIdentity
from trapless.peek.kernel.user.process_areas import Area, Areas
from trapless.peek.kernel.user.program_symbols import Functions

WORD = 8
ADDRESS_END = 1 << 63
"""The upper half of all addresses is the kernel's."""
WITHOUT_FILE = GuestText(b"[memory without a file]")
CODE_64 = 0x33
"""CS of code of 64 bits: other code has another form of frames."""


@dataclass(frozen=True, slots=True)
class UserRegisters:
    """The registers of user mode that a walk begins at."""

    ip: int
    sp: int
    bp: int
    cs: int = CODE_64


@dataclass(frozen=True, slots=True)
class UserStack:
    """The functions of a stack in user mode, innermost first.

    `whole`: its outermost frame was reached. `earlier`: its registers are those of the last entry
    to the kernel, and its thread has gone on since.
    """

    names: tuple[GuestText, ...]
    whole: bool = False
    earlier: bool = False


NO_USER_STACK = UserStack((), whole=True)
"""The user stack of a kernel thread, and of a thread whose registers are not known."""


class UserStacks:
    """Walks the stacks of one kernel's processes. One thread uses it."""

    def __init__(self, target: Resolver) -> None:
        self._target = target
        self._areas, self._files = Areas(target), CachedFiles(target)
        self._bits = target.processor.user_bits
        self._mm = target.offset("task_struct", "mm")
        self._pgd = target.offset("mm_struct", "pgd")
        self._functions: dict[FileIdentity, Functions] = {}
        self._kept = 0  # functions in all of them
        self._names: dict[tuple[FileIdentity, int], GuestText] = {}
        self._budget = limits.Budget(limits.USER_STACKS)
        self._pages: dict[tuple[int, int], int] = {}  # physical, by page table and page
        self._seen: dict[int, list[Area]] = {}  # by mm

    def begin(self) -> None:
        """Begin to walk the stacks of this moment: what was mapped before may have changed."""
        self._budget = limits.Budget(limits.USER_STACKS)
        self._pages.clear()
        self._seen.clear()

    def stack(self, task: int, registers: UserRegisters, *, earlier: bool = False) -> UserStack:
        """The stack of a task's process; LimitError where the walks of this moment took too long.

        What is not mapped, or not in memory, ends the walk.
        """
        with limits.within(self._budget):
            try:
                mm = self._target.read_u64(task + self._mm)
                if not mm:
                    return NO_USER_STACK
                root = self._target.physical(self._target.read_u64(mm + self._pgd))
            except limits.LimitError:
                raise
            except PeekError:  # it has ended meanwhile
                return NO_USER_STACK
            names, whole = self._walk(mm, root, registers)
            return UserStack(tuple(names), whole, earlier)

    def _walk(self, mm: int, root: int, registers: UserRegisters) -> tuple[list[GuestText], bool]:
        tables = replace(self._target.page_tables, root=root)
        names, place, bp, low = list[GuestText](), registers.ip, registers.bp, registers.sp
        try:
            while len(names) < limits.USER_FRAMES_MAX:
                limits.spend()
                area = self._area(mm, place)
                if names and (area is None or not area.executable):
                    # The first function has no caller: its frame is none, or the outermost one.
                    return names, not bp
                names.append(self._name(area, place))
                if registers.cs != CODE_64:
                    return names, False
                if not bp:
                    return names, True  # the outermost frame has none above it
                if bp % WORD or not low <= bp < low + limits.USER_FRAME_BYTES_MAX:
                    return names, False
                above, back = (self._word(tables, bp + WORD * at) for at in (0, 1))
                # The call, not the instruction after it, which may be another function's.
                place, low, bp = (back & self._bits) - 1, bp + 2 * WORD, above
        except limits.LimitError:
            raise
        except PeekError:  # the stack leads out of what is in memory
            pass
        return names, False

    def _word(self, tables: PageTables, address: int) -> int:
        if not 0 <= address < ADDRESS_END:
            raise NotMappedError(f"{address:#x} is no address of user mode")
        page = address - address % PAGE_BYTES
        known = self._pages.get((tables.root, page))
        if known is None:
            known = self._pages[tables.root, page] = tables.physical(page)[0]
        return int.from_bytes(self._target.memory.read(known + address - page, WORD), "little")

    def _area(self, mm: int, address: int) -> Area | None:
        seen = self._seen.setdefault(mm, [])
        for area in seen:
            if area.start <= address < area.end:
                return area
        found = self._areas.at(mm, address) if 0 <= address < ADDRESS_END else None
        if found is not None and len(seen) < limits.USER_AREAS_KEPT_MAX:
            seen.append(found)
        return found

    # ---- Names -----------------------------------------------------------------------------------

    def _name(self, area: Area | None, address: int) -> GuestText:
        if area is None:
            return GuestText(f"{address:#x}".encode())
        if not area.file:
            return WITHOUT_FILE
        offset = address - area.start + area.offset
        identity = self._files.identity(area.file)
        known = self._names.get((identity, offset))
        if known is None:
            known = self._named(area.file, identity, offset)
            if len(self._names) >= limits.USER_NAMES_MAX:
                self._names.clear()
            self._names[identity, offset] = known
        return known

    def _named(self, file: int, identity: FileIdentity, offset: int) -> GuestText:
        function, name = self._functions_of(identity).at(offset), self._files.name(file)
        if function is None:
            return GuestText.stored(f"{name}+{offset:#x}")
        return GuestText.stored(f"{function} [{name}]")

    def _functions_of(self, identity: FileIdentity) -> Functions:
        functions = self._functions.get(identity)
        if functions is None:
            functions = self._read_functions(identity.mapping)
            if (
                self._kept + len(functions) > limits.USER_SYMBOLS_TOTAL_MAX
                or len(self._functions) >= limits.USER_FILES_MAX
            ):
                self._functions.clear()
                self._kept = 0
            self._functions[identity] = functions
            self._kept += len(functions)
        return functions

    def _read_functions(self, mapping: int) -> Functions:
        """The functions of a file; none of one that is made up to take long."""
        try:
            with limits.within(limits.Budget(limits.USER_FILE)):
                return Functions(lambda offset, length: self._files.read(mapping, offset, length))
        except limits.LimitError:
            return Functions(lambda _, length: bytes(length))
