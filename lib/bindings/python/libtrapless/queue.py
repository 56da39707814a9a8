# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""System calls in the slots of a batch.

It owns what the arguments of each call are, and which of them are paths. ring.py owns the slots and
the memory that queued calls point to; call.py owns what an argument is; batch.py and aio.py own who
waits for a flush.
"""

from __future__ import annotations

import operator
import os
from typing import TYPE_CHECKING, NoReturn

from libtrapless import abi
from libtrapless.abi import Backend, Condition, Source, Stats
from libtrapless.call import (
    U64,
    Call,
    Memory,
    Word,
    descriptor,
    number_of,
    path_text,
    readable,
    writable,
)
from libtrapless.names import name_of, number, paths_of
from libtrapless.ring import Ring, check
from libtrapless.stat import Stat

if TYPE_CHECKING:
    from typing import SupportsIndex

    from _typeshed import ReadableBuffer, StrOrBytesPath, WriteableBuffer

    from libtrapless.call import Argument, Descriptor

AT_FDCWD = -100
STEPS = {abi.NR_STORE: "store", abi.NR_INCREASE: "increase"}


class Queue:
    """What is common to Batch and AsyncBatch: calls in slots. One thread at a time may use it."""

    def __init__(
        self, entries: int = 32, *, backend: Backend | None = None, unordered: bool = False
    ) -> None:
        """`entries` is a power of two up to 4096. `backend` None takes the module where it is."""
        flags = {None: 0, Backend.PLAIN: abi.PLAIN, Backend.MODULE: abi.MODULE}[backend]
        flags |= abi.UNORDERED if unordered else 0
        self._ring: Ring | None = Ring(operator.index(entries), flags)

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._ring is None

    def close(self) -> None:
        """Give the batch back, with the memory of its calls. Calls that were not flushed are not
        made. Called by a signal handler during a flush, it takes effect when the flush is over."""
        self._ring = None

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} is one ring: it cannot be copied or pickled")

    @property
    def backend(self) -> Backend:
        ring = self._use()
        return Backend(ring.library.tl_batch_backend(ring.handle))

    @property
    def stats(self) -> Stats:
        """Counts since the batch was created."""
        ring = self._use()
        stats = Stats(size=abi.STATS_BYTES)
        check(ring.library.tl_batch_get_stats(ring.handle, abi.at(stats)), "stats")
        return stats

    def __len__(self) -> int:
        """The number of calls that wait for a flush."""
        return self._use().queued

    # ---- Any call ----------------------------------------------------------------------------

    def add(self, call: SupportsIndex | str, *arguments: Argument) -> Call:
        """Queue a system call by its name or number, with what the kernel is to be given.

        A buffer is passed by its address, and what cannot be changed (str, bytes) as a copy; None
        is 0. A number is whatever operator.index() takes. A Call stands for its result, a Word for
        what is there when the call is made. As with ctypes, nothing checks that a length fits its
        buffer: the functions below do.
        """
        nr = number(call) if isinstance(call, str) else operator.index(call)
        if not 0 <= nr < 1 << 32:
            raise OverflowError(f"{nr} is no number of a call")
        return self._add(nr, *arguments)

    def _add(self, nr: int, *arguments: Argument | Memory, limit: int | None = None) -> Call:
        if len(arguments) > 6:
            raise TypeError(f"a system call takes at most 6 arguments, not {len(arguments)}")
        words, sources, memory = [0] * 6, 0, []
        for i, argument in enumerate(arguments):
            words[i], source, keeper = self._word(argument)
            sources |= source.of(i) if source else 0
            if keeper is not None:
                memory.append(keeper)
        name = STEPS.get(nr) or name_of(nr)
        given = (arguments[i] for i in paths_of(name) if i < len(arguments))
        paths = tuple(one for one in given if isinstance(one, str | bytes))
        queued = Call(self, name, paths, limit)
        self._use().add(nr | sources, words, queued, memory)
        return queued

    def _word(self, argument: Argument | Memory) -> tuple[int, Source | None, object]:
        """64 bits, where they are taken from, and what must live until the call is made."""
        match argument:
            case None:
                return 0, None, None
            case Call():
                return self._result_of(argument)
            case Word():
                source = Source.WORD32 if argument.bits == 32 else Source.WORD64
                memory = writable(argument.buffer)
                return memory.address + argument.offset, source, memory.keeper
            case Memory():
                return argument.address, None, argument.keeper
            case str():
                memory = path_text(argument)
                return memory.address, None, memory.keeper
        found = number_of(argument)
        if found is not None:
            return found & U64, None, None
        memory = readable(argument)  # type: ignore[arg-type]
        return memory.address, None, memory.keeper

    def _result_of(self, call: Call) -> tuple[int, Source | None, object]:
        if call.done:
            return call.result() & U64, None, None
        return self._slot_of(call), Source.RESULT, None

    def _slot_of(self, call: Call) -> int:
        if call.queue is not self:
            raise ValueError(f"{call!r} is queued in another batch")
        if call.done or call.slot is None:
            raise ValueError(f"{call!r} is not queued in this batch")
        return call.slot

    # ---- Calls whose memory is checked ---------------------------------------------------------

    def openat(
        self,
        path: StrOrBytesPath,
        flags: SupportsIndex = os.O_RDONLY,
        mode: SupportsIndex = 0o666,
        *,
        folder: Descriptor = AT_FDCWD,
    ) -> Call:
        """Open a file, close-on-exec."""
        name = os.fspath(path)
        nul = b"\0" if isinstance(name, bytes) else "\0"
        if nul in name:  # type: ignore[operator]
            raise ValueError(f"a NUL byte in {name!r}")
        how = operator.index(flags) | os.O_CLOEXEC
        return self._add(number("openat"), descriptor(folder), name, how, operator.index(mode))

    def close_file(self, fd: Descriptor) -> Call:
        """Close a descriptor."""
        return self._add(number("close"), descriptor(fd))

    def read(self, fd: Descriptor, buffer: WriteableBuffer) -> Call:
        """Read at most as much as the buffer holds."""
        memory = writable(buffer)
        return self._add(number("read"), descriptor(fd), memory, memory.length, limit=memory.length)

    def pread(self, fd: Descriptor, buffer: WriteableBuffer, offset: SupportsIndex) -> Call:
        """Read from a position."""
        memory = writable(buffer)
        at = operator.index(offset)
        return self._add(
            number("pread64"), descriptor(fd), memory, memory.length, at, limit=memory.length
        )

    def write(
        self, fd: Descriptor, data: ReadableBuffer, count: SupportsIndex | Call | None = None
    ) -> Call:
        """Write the buffer, or `count` bytes of it: that may be a read that is queued."""
        memory = readable(data)
        return self._add(number("write"), descriptor(fd), memory, self._count(memory, count))

    def pwrite(
        self,
        fd: Descriptor,
        data: ReadableBuffer,
        offset: SupportsIndex,
        count: SupportsIndex | Call | None = None,
    ) -> Call:
        """Write at a position."""
        memory = readable(data)
        length = self._count(memory, count)
        at = operator.index(offset)
        return self._add(number("pwrite64"), descriptor(fd), memory, length, at)

    def _count(self, memory: Memory, count: SupportsIndex | Call | None) -> int | Call:
        if count is None:
            return memory.length
        most: int | None
        if isinstance(count, Call):
            most = count.result() if count.done else count.limit
        else:
            most = count = operator.index(count)
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

    def store(self, word: Word, value: SupportsIndex | Call) -> Call:
        """A step that writes `value` to a word of 64 bits, and returns it."""
        return self._add(abi.NR_STORE, self._eight(word), self._value(value))

    def increase(self, word: Word, value: SupportsIndex | Call) -> Call:
        """A step that adds `value` to a word of 64 bits, and returns the sum."""
        return self._add(abi.NR_INCREASE, self._eight(word), self._value(value))

    @staticmethod
    def _value(value: SupportsIndex | Call) -> int | Call:
        return value if isinstance(value, Call) else operator.index(value)

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
        aim = None if target is None else self._slot_of(target)
        self._use().jump(self._slot_of(call), Condition(condition), aim)

    def barrier(self) -> None:
        """In an unordered batch, calls queued so far are complete before later ones begin."""
        ring = self._use()
        check(ring.library.tl_batch_barrier(ring.handle), "barrier")

    @property
    def at(self) -> Call | None:
        """The call with which the next flush begins; None where nothing is queued."""
        return self._use().at

    def settle(self) -> None:
        """Give calls their results where a flush is over that an exception has ended."""
        if self._ring is not None:
            self._ring.settle()

    def _use(self) -> Ring:
        ring = self._ring
        if ring is None:
            raise ValueError("the batch is closed")
        return ring
