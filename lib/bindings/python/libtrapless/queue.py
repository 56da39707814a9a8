# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""System calls in the slots of a batch.

It owns the memory that queued calls point to until they are complete, and which call has which
slot. call.py owns what an argument is; batch.py owns who waits for a flush.
"""

from __future__ import annotations

import ctypes
import errno
import os
import weakref
from typing import TYPE_CHECKING

from libtrapless import abi
from libtrapless.abi import Backend, Condition, Source, Stats
from libtrapless.call import Call, Memory, Word, descriptor, readable, writable
from libtrapless.names import name_of, number
from libtrapless.stat import Stat

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from libtrapless.call import Argument, Descriptor

AT_FDCWD = -100
U64 = (1 << 64) - 1
STEPS = {abi.NR_STORE: "store", abi.NR_INCREASE: "increase"}


class Queue:
    """What is common to Batch and AsyncBatch: calls in slots. One thread at a time may use it."""

    def __init__(
        self, entries: int = 32, *, backend: Backend | None = None, unordered: bool = False
    ) -> None:
        """`entries` is a power of two up to 4096. `backend` None takes the module where it is."""
        flags = {None: 0, Backend.PLAIN: abi.PLAIN, Backend.MODULE: abi.MODULE}[backend]
        self._library = abi.library()
        handle = ctypes.c_void_p()
        self._check(
            self._library.tl_batch_create(
                ctypes.byref(handle), entries, flags | (abi.UNORDERED if unordered else 0)
            ),
            f"a batch of {entries} calls",
        )
        self.closed = False
        self._handle = handle
        self._entries = entries
        self._calls: list[Call] = []
        self._memory: list[object] = []
        self._to_end: dict[int, Condition] = {}
        self._destroy = weakref.finalize(self, self._library.tl_batch_destroy, handle)

    def close(self) -> None:
        """Give the batch back. Calls that were not flushed are not made."""
        self.closed = True
        self._destroy()

    @property
    def backend(self) -> Backend:
        return Backend(self._library.tl_batch_backend(self._use()))

    @property
    def stats(self) -> Stats:
        """Counts since the batch was created."""
        stats = Stats(size=ctypes.sizeof(Stats))
        self._check(self._library.tl_batch_get_stats(self._use(), ctypes.byref(stats)), "stats")
        return stats

    def __len__(self) -> int:
        """The number of calls that wait for a flush."""
        return int(self._library.tl_batch_queued(self._use()))

    # ---- Any call ----------------------------------------------------------------------------

    def add(self, call: int | str, *arguments: Argument) -> Call:
        """Queue a system call by its name or number, with what the kernel is to be given.

        A buffer is passed by its address, and what cannot be changed (str, bytes) as a copy; None
        is 0. A Call stands for its result, a Word for what is there when the call is made. As with
        ctypes, nothing checks that a length fits its buffer: the functions below do.
        """
        nr = number(call) if isinstance(call, str) else call
        return self._add(nr, *arguments)

    def _add(self, nr: int, *arguments: Argument | Memory, limit: int | None = None) -> Call:
        handle = self._use()
        if len(arguments) > 6:
            raise TypeError(f"a system call takes at most 6 arguments, not {len(arguments)}")
        words, sources, memory = [0] * 6, 0, []
        for i, argument in enumerate(arguments):
            words[i], source, keeper = self._word(argument)
            sources |= source.of(i) if source else 0
            memory.append(keeper)
        name = STEPS.get(nr) or name_of(nr)
        slot = self._library.tl_batch_add(handle, nr | sources, *words)
        self._check(slot, f"{self._entries} calls are queued: flush them before {name}")
        queued = Call(self, slot, name, limit)
        self._calls.append(queued)
        self._memory += [keeper for keeper in memory if keeper is not None]
        return queued

    def _word(self, argument: Argument | Memory) -> tuple[int, Source | None, object]:
        """64 bits, where they are taken from, and what must live until the call is made."""
        match argument:
            case None:
                return 0, None, None
            case int():
                return argument & U64, None, None
            case Call():
                return self._result_of(argument)
            case Word():
                source = Source.WORD32 if argument.bits == 32 else Source.WORD64
                memory = writable(argument.buffer)
                return memory.address + argument.offset, source, memory.keeper
            case Memory():
                return argument.address, None, argument.keeper
        memory = readable(argument)
        return memory.address, None, memory.keeper

    def _result_of(self, call: Call) -> tuple[int, Source | None, object]:
        if call.done:
            return call.result() & U64, None, None
        if call.queue is not self:
            raise ValueError(f"{call!r} is queued in another batch")
        return call.slot, Source.RESULT, None

    # ---- Calls whose memory is checked ---------------------------------------------------------

    def openat(
        self,
        path: str | bytes,
        flags: int = os.O_RDONLY,
        mode: int = 0o666,
        *,
        folder: Descriptor = AT_FDCWD,
    ) -> Call:
        """Open a file, close-on-exec."""
        path = os.fsdecode(path)
        return self._add(number("openat"), descriptor(folder), path, flags | os.O_CLOEXEC, mode)

    def close_file(self, fd: Descriptor) -> Call:
        """Close a descriptor."""
        return self._add(number("close"), descriptor(fd))

    def read(self, fd: Descriptor, buffer: WriteableBuffer) -> Call:
        """Read at most as much as the buffer holds."""
        memory = writable(buffer)
        return self._add(number("read"), descriptor(fd), memory, memory.length, limit=memory.length)

    def pread(self, fd: Descriptor, buffer: WriteableBuffer, offset: int) -> Call:
        """Read from a position."""
        memory = writable(buffer)
        return self._add(
            number("pread64"), descriptor(fd), memory, memory.length, offset, limit=memory.length
        )

    def write(self, fd: Descriptor, data: ReadableBuffer, count: int | Call | None = None) -> Call:
        """Write the buffer, or `count` bytes of it: that may be a read that is queued."""
        memory = readable(data)
        return self._add(number("write"), descriptor(fd), memory, self._count(memory, count))

    def pwrite(
        self, fd: Descriptor, data: ReadableBuffer, offset: int, count: int | Call | None = None
    ) -> Call:
        """Write at a position."""
        memory = readable(data)
        length = self._count(memory, count)
        return self._add(number("pwrite64"), descriptor(fd), memory, length, offset)

    def _count(self, memory: Memory, count: int | Call | None) -> int | Call:
        if count is None:
            return memory.length
        if isinstance(count, Call) and not count.done:
            most = count.limit
        else:
            most = count.result() if isinstance(count, Call) else count
        if most is None or not 0 <= most <= memory.length:
            raise ValueError(f"{count!r} may be more than the buffer's {memory.length} bytes")
        return count

    def fstat(self, fd: Descriptor, stat: Stat) -> Call:
        return self._add(number("fstat"), descriptor(fd), writable(stat))

    def fsync(self, fd: Descriptor) -> Call:
        return self._add(number("fsync"), descriptor(fd))

    def fdatasync(self, fd: Descriptor) -> Call:
        return self._add(number("fdatasync"), descriptor(fd))

    # ---- Programs ------------------------------------------------------------------------------

    def store(self, word: Word, value: int | Call) -> Call:
        """A step that writes `value` to a word of 64 bits, and returns it."""
        return self._add(abi.NR_STORE, self._eight(word), value)

    def increase(self, word: Word, value: int | Call) -> Call:
        """A step that adds `value` to a word of 64 bits, and returns the sum."""
        return self._add(abi.NR_INCREASE, self._eight(word), value)

    @staticmethod
    def _eight(word: Word) -> Memory:
        if word.bits != 64:
            raise ValueError("a step writes 64 bits, not 32")
        memory = writable(word.buffer)
        return Memory(memory.address + word.offset, 8, memory.keeper)

    def jump(self, call: Call, condition: Condition, target: Call | None = None) -> None:
        """After `call` go on with `target` where the condition is true of its result.

        None is the end of the program as it is when it is flushed.
        """
        for one in (call, target):
            if one is not None and (one.queue is not self or one.done):
                raise ValueError(f"{one!r} is not queued in this batch")
        # An end is known at the flush alone; until then the target is any.
        slot = call.slot if target is None else target.slot
        found = self._library.tl_batch_jump(self._use(), call.slot, condition, slot)
        self._check(found, "a batch whose calls may be made in any order knows no jumps")
        self._to_end.pop(call.slot, None)
        if target is None:
            self._to_end[call.slot] = condition

    def barrier(self) -> None:
        """In an unordered batch, calls queued so far are complete before later ones begin."""
        self._check(self._library.tl_batch_barrier(self._use()), "barrier")

    @property
    def at(self) -> Call | None:
        """The call with which the next flush begins; None where nothing is queued."""
        slot = self._library.tl_batch_at(self._use())
        return self._calls[slot] if slot < len(self._calls) else None

    # ---- Flushing ------------------------------------------------------------------------------

    def _flush(self, steps: int) -> int:
        """Make all queued calls. A signal handler of Python runs between two parts of them; if it
        raises, the rest stays queued. The caller has asked _use()."""
        library, handle = self._library, self._handle
        queued = int(library.tl_batch_queued(handle))
        for slot, condition in self._to_end.items():
            library.tl_batch_jump(handle, slot, condition, len(self._calls))
        while True:
            made = library.tl_batch_flush_steps(handle, steps)
            if made == -errno.ETIME:
                stands_at = self._calls[library.tl_batch_at(handle)]
                text = f"the program has made {steps} steps and stands at {stands_at!r}"
                raise OSError(errno.ETIME, f"{text}; another flush goes on")
            if made != -errno.EINTR:
                self._check(made, "flush")
            if not library.tl_batch_queued(handle):
                break
        for call in self._calls:
            call.complete(library.tl_batch_result(handle, call.slot))
        self._calls.clear()
        self._memory.clear()
        self._to_end.clear()
        return queued

    def _use(self) -> ctypes.c_void_p:
        if self.closed:
            raise ValueError("the batch is closed")
        return self._handle

    @staticmethod
    def _check(result: int, what: str) -> None:
        if result < 0:
            raise OSError(-result, f"{os.strerror(-result)} ({what})")
