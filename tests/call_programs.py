# SPDX-License-Identifier: GPL-2.0-only
"""Random programs of calls, and a second implementation of what each must do.

Owns the generator, the reference interpreter and the comparison. The programs are run by
tests/unit/lib/run_programs.c, by the module or by plain calls; the calls are few and simple, so
that this file can know their results. Run as a command it compares as many as it is asked for:

    python -m tests.call_programs --count 100000 --seed 1 -- COMMAND...

COMMAND reads programs and writes what became of them. It is build/tests/unit/lib_run_programs
itself, or that in a VM: bin/trapless lab --host-root -- env TRAPLESS_BACKEND=module "$PWD"/...
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trapless import abi

WORDS = 16
ENTRIES = 32
BUFFER_SHOWN = 256
MEMORY = 0x10000000
BUFFER = MEMORY + 4096
MEMORY_BYTES = 17 * 4096
ABSENT = 0x20000000
FILE, NO_FILE = 10, 99
HELD, HELD_FILE, HELD_BYTES = 0x18000000, 41, 4096
"""A page that nobody can read or write until the descriptor is closed."""
TAIL, PIPES = 0x1C000000, (42, 43)
"""Stands for the address of io_uring's count of completions, 32 bits. The first byte in each pipe
completes one request, by work that the call leaves to its thread: the next step sees the count."""
COMPLETIONS, HELD_PAGE = 1, 2
"""Bits of what a program uses, and of what there is."""
COUNTERS, WRITABLE_WORDS = (
    8,
    12,
)  # from the first on, some are counted down; of the others, the programs only read
U64 = (1 << 64) - 1
FILE_MAX = 1 << 24
"""Bytes. A word that was counted below 0 is a position beyond, of a file that nobody can hold."""

READ, WRITE, CLOSE, LSEEK, FORK, UMASK, PREAD, PWRITE, UNKNOWN = 0, 1, 3, 8, 57, 95, 17, 18, 2000
CALLS = (READ, WRITE, LSEEK, UMASK, PREAD, PWRITE)


class Input(ctypes.Structure):
    """struct input of run_programs.c."""

    _fields_ = [
        ("requests", ctypes.c_uint32),
        ("steps", ctypes.c_uint32),
        ("uses", ctypes.c_uint64),
        ("words", ctypes.c_uint64 * WORDS),
    ]


class Slot(ctypes.Structure):
    _fields_ = [("result", ctypes.c_int64), ("done", ctypes.c_int64)]


class Output(ctypes.Structure):
    """struct output of run_programs.c."""

    _fields_ = [
        ("flushed", ctypes.c_int32 * 2),
        ("at", ctypes.c_uint32 * 2),
        ("position", ctypes.c_int64),
        ("file_bytes", ctypes.c_uint64),
        ("mask", ctypes.c_uint64),
        ("offered", ctypes.c_uint64),
        ("words", ctypes.c_uint64 * WORDS),
        ("held", ctypes.c_uint64 * WORDS),
        ("buffer", ctypes.c_uint8 * BUFFER_SHOWN),
        ("requests", Slot * ENTRIES),
    ]


@dataclass
class Program:
    steps: int
    words: list[int]
    requests: list[abi.Request]
    uses: int = 0

    def pack(self) -> bytes:
        words = (ctypes.c_uint64 * WORDS)(*self.words)
        head = Input(len(self.requests), self.steps, self.uses, words)
        return bytes(head) + b"".join(bytes(request) for request in self.requests)


# ---- The generator -------------------------------------------------------------------------------


def _unusual(rng: random.Random, uses: int) -> abi.Request:
    """A call that leaves work to its thread, or a step that shows whether the work was done."""
    word = MEMORY + 8 * rng.randrange(COUNTERS)
    if uses == COMPLETIONS:
        pipe = rng.choice(PIPES)
        steps = [
            (WRITE, [pipe, BUFFER, rng.randrange(3)]),
            (abi.NR_STORE | abi.word_argument(1, 32), [word, TAIL]),
            (abi.NR_INCREASE | abi.word_argument(1, 32), [word, TAIL]),
            (UMASK | abi.word_argument(0, 32), [TAIL]),
        ]
    else:
        held = HELD + 8 * rng.randrange(3)
        steps = [
            (CLOSE, [HELD_FILE]),
            (abi.NR_STORE | abi.word_argument(1, rng.choice([32, 64])), [word, held]),
            (rng.choice([abi.NR_STORE, abi.NR_INCREASE]), [held, 7]),
            (UMASK | abi.word_argument(0, 64), [held]),
        ]
    nr, args = rng.choice(steps)
    request = abi.Request(nr)
    request.args[: len(args)] = args
    return request


def _sourced(rng: random.Random, argument: int, plain: int, n: int) -> tuple[int, int]:
    """An argument and its bits of the number: most are passed as they are."""
    kind = rng.random()
    if kind < 0.55:
        return plain, 0
    if kind < 0.75:
        return rng.choice([*range(n), n, 5000]), abi.result_argument(argument)
    address = MEMORY + 8 * rng.randrange(WRITABLE_WORDS) if rng.random() < 0.95 else ABSENT
    return address, abi.word_argument(argument, 32 if kind < 0.87 else 64)


def _address(
    rng: random.Random, argument: int, low: int, high: int, absent: bool = True
) -> tuple[int, int]:
    """The address of a word or buffer, or one where nothing is; sometimes itself from memory."""
    kind = rng.random()
    if kind < 0.8:
        return rng.randrange(low, high, 8), 0
    if kind < 0.9 and absent:
        return ABSENT, 0
    word = 14 if low == BUFFER else 13
    word = rng.choice([word, word, 15]) if absent else word
    return MEMORY + 8 * word, abi.word_argument(argument, 64)


def _request(rng: random.Random, n: int) -> abi.Request:
    nr = rng.choice([*CALLS, *CALLS, abi.NR_STORE, abi.NR_INCREASE, abi.NR_INCREASE, FORK, UNKNOWN])
    args = [rng.randrange(4) for _ in range(6)]
    bits = [0] * 6
    sources: tuple[int, ...] = ()
    if nr in (READ, WRITE, PREAD, PWRITE):
        args[0] = FILE if rng.random() < 0.9 else NO_FILE
        # Kernels differ in how long a file is after a write of nothing behind its end.
        reads = nr in (READ, PREAD)
        args[1], bits[1] = _address(rng, 1, BUFFER, BUFFER + BUFFER_SHOWN - 64, reads)
        args[2] = rng.randrange(48)
        sources = (2, 3) if nr in (PREAD, PWRITE) else (2,)
    elif nr == LSEEK:
        args[0] = FILE
        args[1], args[2] = rng.choice([0, 0, 5, -3 & U64, 40]), rng.choice([0, 1, 1, 2, 9])
        sources = (1,)
    elif nr in (abi.NR_STORE, abi.NR_INCREASE):
        args[0], bits[0] = _address(rng, 0, MEMORY, MEMORY + 8 * WRITABLE_WORDS)
        args[1] = rng.choice([0, 1, 7])
        if args[0] >= MEMORY + 8 * COUNTERS and nr == abi.NR_INCREASE and not bits[0]:
            args[1] = -1 & U64
        sources = (1,)
    elif nr == UMASK:
        sources = (0,)
    for argument in sources:
        args[argument], bits[argument] = _sourced(rng, argument, args[argument], n)
    if rng.random() < 0.05:  # an argument that the call does not have
        args[5], bits[5] = _sourced(rng, 5, 0, n)
    if rng.random() < 0.02:
        bits[5] |= 1 << rng.randrange(25, 32)
    request = abi.Request(nr | sum(bits))
    request.args[:] = args
    return request


def _jump(rng: random.Random, request: abi.Request, n: int) -> abi.Request:
    if rng.random() < 0.4:
        request.nr |= abi.JUMPS
        request.condition = rng.randrange(9)
        request.target = rng.choice([*range(n + 1), n + 1 + rng.randrange(3)])
    return request


def make(rng: random.Random) -> Program:
    n = rng.randint(1, 12)
    uses = rng.choice([0, 0, 0, COMPLETIONS, HELD_PAGE, COMPLETIONS | HELD_PAGE])
    requests = []
    for _ in range(n):
        kinds = [bit for bit in (COMPLETIONS, HELD_PAGE) if uses & bit]
        unusual = kinds and rng.random() < 0.5
        request = _unusual(rng, rng.choice(kinds)) if unusual else _request(rng, n)
        requests.append(_jump(rng, request, n))
    words = [rng.randrange(24) for _ in range(COUNTERS)]
    words += [100] * (WRITABLE_WORDS - COUNTERS)  # more than the steps: no word is negative
    words += [0, MEMORY + 8 * 3, BUFFER, ABSENT]
    return Program(rng.choice([5, 40, 40]), words, requests, uses)


# ---- The reference interpreter -------------------------------------------------------------------


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


class FileTooLargeError(Exception):
    """The program makes a file of more than FILE_MAX bytes."""


@dataclass
class Machine:
    """What a program can change. Calls return a result as the kernel does."""

    memory: bytearray
    file: bytearray = field(default_factory=bytearray)
    position: int = 0
    mask: int = 0o022
    offered: int = 0
    held: bytearray = field(default_factory=lambda: bytearray(HELD_BYTES))
    is_closed: bool = False
    completed: set[int] = field(default_factory=set)

    def has(self, address: int, n: int) -> bool:
        return address >= MEMORY and address + n <= MEMORY + MEMORY_BYTES

    def piece(self, address: int, n: int) -> tuple[bytearray, int] | None:
        """The memory at an address, and where in it that is."""
        if self.has(address, n):
            return self.memory, address - MEMORY
        if HELD <= address <= HELD + HELD_BYTES - n and (
            self.is_closed or not self.offered & HELD_PAGE
        ):
            return self.held, address - HELD
        return None

    def load(self, address: int, n: int) -> int | None:
        if address == TAIL:
            return len(self.completed) if self.offered & COMPLETIONS else 0
        piece = self.piece(address, n)
        return piece and int.from_bytes(piece[0][piece[1] : piece[1] + n], "little")

    def store(self, address: int, value: int) -> int:
        piece = self.piece(address, 8)
        if not piece:
            return -errno.EFAULT
        piece[0][piece[1] : piece[1] + 8] = (value & U64).to_bytes(8, "little")
        return _signed(value & U64)

    def transfer(self, nr: int, address: int, n: int, at: int) -> int:
        """A read or write at a position."""
        if n >> 47:
            return -errno.EFAULT
        if nr in (READ, PREAD):
            n = min(n, max(0, len(self.file) - at))
        if self.has(address, 1):
            n = min(n, MEMORY + MEMORY_BYTES - address)  # up to the first byte that is absent
        elif n:
            return -errno.EFAULT
        start = address - MEMORY
        if nr in (READ, PREAD):
            self.memory[start : start + n] = self.file[at : at + n]
        elif n:
            if at + n > FILE_MAX:
                raise FileTooLargeError
            self.file.extend(bytes(max(0, at + n - len(self.file))))
            self.file[at : at + n] = self.memory[start : start + n]
        return n

    def call(self, nr: int, args: Sequence[int]) -> int:
        if nr == UMASK:
            old, self.mask = self.mask, args[0] & 0o777
            return old
        if nr in (FORK, UNKNOWN):
            return -errno.EOPNOTSUPP if nr == FORK else -errno.ENOSYS
        if nr in (PREAD, PWRITE) and _signed(args[3]) < 0:
            return -errno.EINVAL
        if nr == CLOSE and not self.is_closed:
            self.is_closed = True
            return 0
        if nr == WRITE and args[0] in PIPES:
            self.completed |= {args[0]} if args[2] else set()
            return args[2]
        if args[0] != FILE:
            return -errno.EBADF
        if nr in (PREAD, PWRITE):
            return self.transfer(nr, args[1], args[2], args[3])
        if nr == LSEEK:
            base = {0: 0, 1: self.position, 2: len(self.file)}.get(args[2])
            if base is None or base + _signed(args[1]) < 0:
                return -errno.EINVAL
            self.position = base + _signed(args[1])
            return self.position
        moved = self.transfer(nr, args[1], args[2], self.position)
        self.position += max(0, moved)
        return moved


class Reference:
    """Executes one program as <linux/trapless.h> says it."""

    def __init__(self, program: Program, offered: int) -> None:
        self.requests = program.requests
        self.end = len(program.requests)
        memory = bytearray(MEMORY_BYTES)
        for i, word in enumerate(program.words):
            memory[8 * i : 8 * i + 8] = word.to_bytes(8, "little")
        self.machine = Machine(memory, offered=offered)
        self.results: list[int | None] = [None] * self.end
        self.at = 0

    def flush(self, steps: int) -> int:
        while self.at < self.end:
            if not steps:
                return -errno.ETIME
            steps -= 1
            self.step()
        self.results = [-errno.ECANCELED if r is None else r for r in self.results]
        return self.end

    def step(self) -> None:
        request = self.requests[self.at]
        args = list(request.args)
        may_jump = bool(request.nr & abi.JUMPS)
        if request.nr & ~(abi.PROGRAM_BITS | abi.NR_MASK):
            result, may_jump = -errno.ENOSYS, False
        elif may_jump and request.target > self.end:
            result, may_jump = -errno.EINVAL, False
        else:
            result = self.take(request.nr, args) or self.make(request.nr & abi.NR_MASK, args)
        self.results[self.at] = result
        jumps = may_jump and condition(request.condition, result, args[2])
        self.at = request.target if jumps else self.at + 1

    def take(self, nr: int, args: list[int]) -> int:
        """Replace the arguments that are taken from elsewhere; 0 or -errno."""
        for i in range(6):
            source = nr >> (12 + 2 * i) & 3
            if source == 1:
                if args[i] >= self.end:
                    return -errno.EINVAL
                result = self.results[args[i]]
                if result is None or -4095 <= result < 0:
                    return -errno.ECANCELED
                args[i] = result & U64
            elif source:
                word = self.machine.load(args[i], 4 if source == 2 else 8)
                if word is None:
                    return -errno.EFAULT
                args[i] = word
        return 0

    def make(self, nr: int, args: Sequence[int]) -> int:
        if nr == abi.NR_STORE:
            return self.machine.store(args[0], args[1])
        if nr == abi.NR_INCREASE:
            old = self.machine.load(args[0], 8)
            return -errno.EFAULT if old is None else self.machine.store(args[0], old + args[1])
        return self.machine.call(nr, args)


def condition(which: int, result: int, third: int) -> bool:
    error = -4095 <= result < 0
    return (
        {
            abi.Condition.ALWAYS: True,
            abi.Condition.ERROR: error,
            abi.Condition.SUCCESS: not error,
            abi.Condition.ZERO: result == 0,
            abi.Condition.POSITIVE: result > 0,
            abi.Condition.SHORT: 0 <= result < third,
            abi.Condition.FULL: result & U64 == third,
        }.get(abi.Condition(which), False)
        if which <= abi.Condition.FULL
        else False
    )


# ---- The comparison ------------------------------------------------------------------------------


def expected(program: Program, offered: int) -> tuple[object, ...]:
    reference = Reference(program, offered)
    flushed, at = [], []
    for _ in range(2):
        if flushed and flushed[-1] > 0:
            flushed.append(0)  # nothing is queued any more
            at.append(0)
            continue
        flushed.append(reference.flush(program.steps))
        at.append(0 if flushed[-1] > 0 else reference.at)
    machine = reference.machine
    return (
        flushed, at, machine.position, machine.mask,
        [machine.load(MEMORY + 8 * i, 8) for i in range(WORDS)],
        list((ctypes.c_uint64 * WORDS).from_buffer(machine.held)),
        bytes(machine.memory[4096 : 4096 + BUFFER_SHOWN]),
        reference.results, bytes(machine.file),
    )  # fmt: skip


def describe(program: Program) -> str:
    return str([f"{r.nr:#x}({list(r.args)}) {r.condition}->{r.target}" for r in program.requests])


def differences(programs: Sequence[Program], answer: bytes, all_offered: bool) -> list[str]:
    """What differs between the answer to these programs and the reference, in words.

    Each program was made as a batch and then by a worker, which tells of no flushes, and to which
    no completions are offered: they are another thread's. `all_offered`: the rest must be.
    """
    found, offset = [], 0
    for i, program in enumerate(programs):
        for way, told in (("batch", 0), ("worker", 2)):
            if offset + ctypes.sizeof(Output) > len(answer):
                return [*found, f"program {i} and later ones have no answer"]
            out = Output.from_buffer_copy(answer, offset)
            offset += ctypes.sizeof(Output) + out.file_bytes
            want = expected(program, out.offered)
            missing = program.uses & ~out.offered & ~(COMPLETIONS if told else 0)
            if all_offered and missing:
                found.append(f"{way} of program {i}: of what it uses there was no {missing}")
            slots = out.requests[: len(program.requests)]
            got = (
                list(out.flushed), list(out.at), out.position, out.mask, list(out.words),
                list(out.held), bytes(out.buffer),
                [slot.result if slot.done else None for slot in slots],
                answer[offset - out.file_bytes : offset],
            )  # fmt: skip
            pairs = list(zip(got, want, strict=True))[told:]
            parts = [f"  {g!r} is not {w!r}" for g, w in pairs if g != w]
            if parts:
                found.append("\n".join([f"{way} of program {i} {describe(program)}:", *parts]))
    return found


def compare(
    run: Callable[[bytes], bytes], count: int, seed: int, all_offered: bool = False
) -> list[str]:
    """Make programs, let `run` execute them, and say what differs."""
    rng, programs = random.Random(seed), list[Program]()
    while len(programs) < count:
        program = make(rng)
        with contextlib.suppress(FileTooLargeError):
            expected(program, program.uses)
            programs.append(program)
    return differences(programs, run(b"".join(program.pack() for program in programs)), all_offered)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10000, help="programs (10000)")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (1)")
    parser.add_argument("command", nargs="+", help="runs the programs")
    options = parser.parse_args()

    def run(packed: bytes) -> bytes:
        return subprocess.run(
            options.command, input=packed, stdout=subprocess.PIPE, check=True
        ).stdout

    found = compare(run, options.count, options.seed)
    print("\n".join(found[:10]))
    print(f"{options.count} programs, {len(found)} differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
