# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""One queued call, and what its arguments may be.

It owns what a result is, and where the memory of an argument is. queue.py owns the batch that the
call is queued in.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    Argument: TypeAlias = "int | str | Call | Word | ReadableBuffer | None"
    Descriptor: TypeAlias = "int | Call | Word | HasFileno"


class HasFileno(Protocol):
    """A file, a socket: what has a descriptor."""

    def fileno(self) -> int: ...


class Call:
    """A call in a batch. As an argument of a later call it stands for its result."""

    __slots__ = ("_value", "limit", "name", "queue", "slot")

    def __init__(self, queue: object, slot: int, name: str, limit: int | None = None) -> None:
        self.queue, self.slot, self.name = queue, slot, name
        """`queue` tells calls of one batch from those of others, and is not used otherwise."""
        self.limit = limit
        """The largest result, where it is known: a read returns no more than it was asked for."""
        self._value: int | None = None

    @property
    def done(self) -> bool:
        """Whether a flush has completed the call."""
        return self._value is not None

    @property
    def value(self) -> int:
        """What the call returned: a result, or an error as a negative number."""
        if self._value is None:
            raise RuntimeError(f"{self!r} is not complete: flush the batch first")
        return self._value

    def result(self) -> int:
        """What the call returned. Raises OSError where it failed, with its errno."""
        if -4095 <= self.value < 0:
            raise OSError(-self.value, os.strerror(-self.value), self.name)
        return self.value

    def complete(self, value: int) -> None:
        """The batch says what the call returned."""
        self._value = value

    def __repr__(self) -> str:
        value = "queued" if self._value is None else self._value
        return f"<Call {self.slot} {self.name}: {value}>"


@dataclass(frozen=True)
class Word:
    """Bits of memory that are read when the call is made, not when it is queued."""

    buffer: WriteableBuffer
    offset: int = 0
    bits: Literal[32, 64] = 64

    def __post_init__(self) -> None:
        length = memoryview(self.buffer).nbytes
        if self.offset < 0 or self.offset + self.bits // 8 > length:
            raise ValueError(
                f"a word of {self.bits} bits at {self.offset} is not in a buffer of {length} bytes"
            )

    @property
    def value(self) -> int:
        """What is there now."""
        whole = memoryview(self.buffer).cast("B")
        return int.from_bytes(whole[self.offset : self.offset + self.bits // 8], "little")


@dataclass(frozen=True)
class Memory:
    """Where bytes are, and the object that keeps them there."""

    address: int
    length: int
    keeper: object


def writable(buffer: WriteableBuffer) -> Memory:
    """Memory that a call may write to. It can be neither moved nor resized while it is kept."""
    view = memoryview(buffer)
    if view.readonly:
        raise TypeError(f"a call cannot write to a {type(buffer).__name__}: use a bytearray")
    keeper = (ctypes.c_char * view.nbytes).from_buffer(buffer)
    return Memory(ctypes.addressof(keeper), view.nbytes, keeper)


def readable(data: str | ReadableBuffer) -> Memory:
    """Memory that a call reads. What Python cannot change is copied, so that no call changes it."""
    if isinstance(data, str):
        path = os.fsencode(data)
        if b"\0" in path:
            raise ValueError(f"a NUL byte in {data!r}")
        keeper = ctypes.create_string_buffer(path)
        return Memory(ctypes.addressof(keeper), len(path) + 1, keeper)
    view = memoryview(data)
    if not view.readonly:
        return writable(data)
    copy = ctypes.create_string_buffer(view.tobytes(), view.nbytes + 1)
    return Memory(ctypes.addressof(copy), view.nbytes, copy)


def descriptor(fd: Descriptor) -> int | Call | Word:
    """What a descriptor is given as, less the objects of Python."""
    return fd if isinstance(fd, int | Call | Word) else fd.fileno()
