# SPDX-License-Identifier: GPL-2.0-only
"""Tells for an instruction of the kernel where its function's caller is found: by the unwind tables
(ORC), or by frame pointers in a kernel without tables.

Owns the tables of the kernel and of its modules, and the form of their entries, which differs
between kernels: the bit fields are where the kernel's types have them. x86_frames.py follows the
rules. drgn reads the kernel's tables as well, but neither those of modules nor in the sandbox,
where all that a guest has written is decoded.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.kernel.loaded_modules import Module, Modules
from trapless.peek.kernel.name_resolver import Resolver

PLACE_BYTES = 4
TABLES = ("__start_orc_unwind_ip", "__stop_orc_unwind_ip", "__start_orc_unwind")
CODE = (("_text", "_etext"), ("_sinittext", "_einittext"))
"""The code of the image. The second part is gone after the boot, but callers of the first CPU's
idle loop were in it."""
NEW_TYPE_BITS = 3
"""The type of an entry has two bits or three: with three, its numbers are those of Kind."""
_DAMAGED = "the kernel's types are damaged"


class Kind(IntEnum):
    """What lies between a function's frame and its caller's, which decides how to unwind."""

    UNDEFINED = 0  # nothing is known
    END = 1  # there is no caller
    CALL = 2
    REGS = 3  # all registers, saved at an interrupt or an exception
    REGS_PARTIAL = 4  # those of them that the processor saves


class Register(IntEnum):
    """The base of an address."""

    UNDEFINED = 0
    PREV_SP = 1
    DX = 2
    DI = 3
    BP = 4
    SP = 5
    R10 = 6
    R13 = 7
    BP_INDIRECT = 8
    SP_INDIRECT = 9
    AX = 10
    OTHER = 15


_R = Register
NUMBERINGS: dict[int, tuple[Register, ...]] = {
    Register.SP: tuple(Register)[:10],
    3: (
        *(_R.UNDEFINED, _R.AX, _R.DX, _R.SP, _R.BP, _R.DI, _R.R10, _R.R13, _R.PREV_SP),
        *(_R.SP_INDIRECT, _R.BP_INDIRECT),
    ),
}
"""Kernels number the registers in one of two ways; the number of SP shows which."""
FUNCTION = "schedule"
"""At the first instruction of any function, the caller's frame is at SP + 8."""
AT_CALL = 8


@dataclass(frozen=True, slots=True)
class Rule:
    """How the caller's frame is found. `signal`: the address is that of the next instruction, and
    no return address."""

    sp: Register
    sp_offset: int
    bp: Register
    bp_offset: int
    kind: Kind
    signal: bool


FRAME_POINTER = Rule(Register.BP, 16, Register.PREV_SP, -16, Kind.CALL, False)
"""The rule for code without tables, as the kernel has it."""
AT_SAVED_REGISTERS = Rule(Register.BP, -1, Register.UNDEFINED, 0, Kind.REGS, True)
"""The rule for an odd frame pointer, by which the entry code of kernels with frame pointers tells
where it has saved all registers."""
AT_ENTRY = Rule(Register.SP, 0, Register.UNDEFINED, 0, Kind.REGS, True)
"""The rule for the frame pointer 0: the caller is entry code, behind which the registers lie."""
FRAME_SET_UP, FRAME_SET_UP_BYTES = bytes.fromhex("554889e5"), 16
"""push %rbp; mov %rsp,%rbp: near the beginning of a function that keeps a frame pointer."""


class _Form:
    """The form of an entry in one kernel."""

    def __init__(self, target: Resolver) -> None:
        self.size = target.sizeof("orc_entry")
        if not 0 < self.size <= 64:
            raise PeekError(f"an entry of the unwind tables takes {self.size} bytes: {_DAMAGED}")
        self._number = {
            name: self._field(target, name)
            for name in ("sp_offset", "bp_offset", "sp_reg", "bp_reg", "type", "signal", "end")
            if name in ("sp_offset", "bp_offset", "sp_reg", "bp_reg", "type")
            or target.has_member("orc_entry", name)
        }
        self._registers: tuple[Register, ...] = NUMBERINGS[Register.SP]
        self._is_new = target.place("orc_entry", "type").bits >= NEW_TYPE_BITS

    def _field(self, target: Resolver, name: str) -> Callable[[int], int]:
        place = target.place("orc_entry", name)
        shift = 8 * place.offset + place.bit
        bits = place.bits or 8 * place.size
        if not 0 < bits <= 64 or shift + bits > 8 * self.size:
            raise PeekError(f"orc_entry.{name} is not in its entry: {_DAMAGED}")
        mask, sign = (1 << bits) - 1, 1 << bits - 1 if name.endswith("_offset") else 0

        def value(entry: int) -> int:
            number = entry >> shift & mask
            return number - 2 * sign if number & sign else number

        return value

    def choose_numbering(self, release: object, data: bytes | None) -> None:
        """Find out how the registers are numbered, by the entry of a function's beginning."""
        entry = int.from_bytes(data or b"", "little")
        sp, offset = self._number["sp_reg"](entry), self._number["sp_offset"](entry)
        if offset != AT_CALL or sp not in NUMBERINGS:
            raise PeekError(
                f"the unwind tables of {release} are of a form that is not known, or damaged: a "
                f"function begins with register {sp} and offset {offset}"
            )
        self._registers = NUMBERINGS[sp]

    def _register(self, number: int) -> Register:
        return self._registers[number] if number < len(self._registers) else Register.OTHER

    def rule(self, data: bytes) -> Rule:
        entry, number = int.from_bytes(data, "little"), self._number
        kind, sp = number["type"](entry), self._register(number["sp_reg"](entry))
        if self._is_new:
            known = Kind(kind) if kind <= max(Kind) else Kind.UNDEFINED
        else:  # the types were 0, 1 and 2, and "no register" was an end or nothing
            known = Kind(kind + Kind.CALL) if kind + Kind.CALL <= max(Kind) else Kind.UNDEFINED
            if sp == Register.UNDEFINED:
                ends = "end" in number and number["end"](entry)
                known = Kind.END if ends else Kind.UNDEFINED
        # Kernels without the bit say it by the type.
        signal = bool(number["signal"](entry)) if "signal" in number else known != Kind.CALL
        return Rule(
            sp,
            number["sp_offset"](entry),
            self._register(number["bp_reg"](entry)),
            number["bp_offset"](entry),
            known,
            signal,
        )


@dataclass(frozen=True)
class _Table:
    """One table: where each entry's code begins, counted from the place itself, and the entries."""

    at: int
    places: memoryview  # of signed numbers
    entries: bytes

    def find(self, address: int, size: int) -> bytes | None:
        """The entry of the code at an address; None before the first."""

        def begin(number: int) -> int:
            return self.at + PLACE_BYTES * number + int(self.places[number])

        number = bisect.bisect_right(range(len(self.places)), address, key=begin) - 1
        return None if number < 0 else self.entries[number * size : (number + 1) * size]


class Code:
    """The code of a kernel and of its modules: where a stack may lead. One thread."""

    def __init__(self, target: Resolver, modules: Callable[[], Modules]) -> None:
        self._target, self._modules = target, modules
        self._is_fresh = False
        self._code = [
            (target.symbol(begin), target.symbol(end))
            for begin, end in CODE
            if target.has_symbol(begin) and target.has_symbol(end)
        ]

    def begin(self) -> None:
        """Begin a walk, in which the list of modules is read again once at most."""
        self._is_fresh = False

    def is_code(self, address: int) -> bool:
        """Whether an address is in the code of the kernel or of a module."""
        return self._in_image(address) or self._module(address) is not None

    def rule(self, address: int, bp: int) -> Rule | None:
        """The rule for the instruction at an address, with that value in the register BP; None for
        code without one."""
        raise NotImplementedError

    def _in_image(self, address: int) -> bool:
        return any(begin <= address < end for begin, end in self._code)

    def _module(self, address: int) -> Module | None:
        modules = self._modules()
        module = modules.known(address)
        if module is None and address >> 63 and not self._is_fresh:
            self._is_fresh = True
            modules.refresh()
            module = modules.known(address)
        return module


class FramePointers(Code):
    """The rules of a kernel whose every function keeps a frame pointer."""

    def rule(self, _address: int, bp: int) -> Rule | None:
        if bp == 0:
            return AT_ENTRY
        return AT_SAVED_REGISTERS if bp & 1 else FRAME_POINTER


def code_of(target: Resolver, modules: Callable[[], Modules]) -> Code:
    """How a kernel's stacks are unwound; PeekError where it can be done in no way."""
    if all(map(target.has_symbol, TABLES)):
        return Orc(target, modules)
    if FRAME_SET_UP in target.read(target.symbol(FUNCTION), FRAME_SET_UP_BYTES):
        return FramePointers(target, modules)
    raise PeekError(
        f"{target.release} has neither unwind tables (CONFIG_UNWINDER_ORC) nor frame pointers "
        "(CONFIG_UNWINDER_FRAME_POINTER): its stacks cannot be read"
    )


class Orc(Code):
    """The unwind tables of one kernel, each read when it is needed first. One thread."""

    def __init__(self, target: Resolver, modules: Callable[[], Modules]) -> None:
        super().__init__(target, modules)
        self._form = _Form(target)
        self._rules: dict[int, Rule | None] = {}  # of the image, by address
        self._of_modules: dict[int, tuple[Module, _Table | None]] = {}  # by the module's identity
        self._bytes = 0
        start, stop, entries = map(target.symbol, TABLES)
        self._image = self._read(start, (stop - start) // PLACE_BYTES, entries)
        beginning = self._image.find(target.symbol(FUNCTION), self._form.size)
        self._form.choose_numbering(target.release, beginning)

    def rule(self, address: int, _bp: int) -> Rule | None:
        """The rule for the instruction at an address; None for code without tables."""
        if not self._in_image(address):
            module = self._module(address)
            table = None if module is None else self._table(module)
            return None if table is None else self._rule(table, address)
        if address not in self._rules:
            if len(self._rules) >= limits.UNWIND_ROWS_MAX:
                self._rules.clear()
            self._rules[address] = self._rule(self._image, address)
        return self._rules[address]

    def _rule(self, table: _Table, address: int) -> Rule | None:
        limits.spend()
        entry = table.find(address, self._form.size)
        return None if entry is None else self._form.rule(entry)

    def _table(self, module: Module) -> _Table | None:
        if id(module) not in self._of_modules:
            if len(self._of_modules) >= limits.MODULES_MAX:  # unloaded ones, most of them
                self._of_modules.clear()
            places, entries, count = module.unwinding
            table = self._read(places, count, entries) if count else None
            self._of_modules[id(module)] = module, table  # whose identity stays its own so
        return self._of_modules[id(module)][1]

    def _read(self, places: int, count: int, entries: int) -> _Table:
        total = self._bytes + count * (PLACE_BYTES + self._form.size)
        if not 0 < count <= limits.UNWIND_ROWS_MAX or total > limits.UNWIND_BYTES_TOTAL_MAX:
            raise PeekError(
                f"the unwind tables of {self._target.release} claim {count:,} rows, {total:,} "
                "bytes in all: they are damaged, or made up"
            )
        self._bytes = total
        data = self._target.read(places, PLACE_BYTES * count)
        numbers = memoryview(data).cast("i")  # of this machine's order, which is x86-64's
        return _Table(places, numbers, self._target.read(entries, self._form.size * count))
