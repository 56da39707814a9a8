# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""One queued call, and what its arguments may be.

It owns what a result is, what a number is, and where the memory of an argument is. queue.py owns
the batch that the call is queued in.
"""

from __future__ import annotations

import ctypes
import operator
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol, SupportsIndex, TypeAlias

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from libtrapless.queue import Queue

    Argument: TypeAlias = "SupportsIndex | str | Call | Word | ReadableBuffer | None"
    Descriptor: TypeAlias = "SupportsIndex | Call | Word | HasFileno"

U64 = (1 << 64) - 1
INT_MAX = (1 << 31) - 1


class HasFileno(Protocol):
    """A file, a socket: what has a descriptor."""

    def fileno(self) -> int: ...


class Call:
    """A call in a batch. As an argument of a later call it stands for its result."""

    __slots__ = ("_value", "limit", "name", "paths", "queue", "slot")

    def __init__(
        self, queue: Queue, name: str, paths: tuple[object, ...] = (), limit: int | None = None
    ) -> None:
        self.queue, self.name = queue, name
        self.slot: int | None = None
        self.paths = paths
        """The paths among the arguments, which an error names."""
        self.limit = limit
        """The largest result, where it is known: a read returns no more than it was asked for."""
        self._value: int | None = None

    @property
    def done(self) -> bool:
        """Whether a flush has completed the call."""
        if self._value is None:
            self.queue.settle()
        return self._value is not None

    @property
    def value(self) -> int:
        """What the call returned: a result, or an error as a negative number."""
        if self._value is None:
            self.queue.settle()
        if self._value is None:
            raise RuntimeError(f"{self!r} is not complete: flush the batch first")
        return self._value

    def result(self) -> int:
        """What the call returned. Raises OSError where it failed, with its errno and its path."""
        value = self.value
        if not -4095 <= value < 0:
            return value
        if not self.paths:
            raise OSError(-value, f"{os.strerror(-value)} ({self.name})")
        raise OSError(-value, os.strerror(-value), self.paths[0], None, *self.paths[1:2])

    def complete(self, value: int) -> None:
        """The batch says what the call returned, once."""
        if self._value is None:
            self._value = value

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a call belongs to its batch, and cannot be copied or pickled")

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
        if self.bits not in (32, 64):
            raise ValueError(f"a word has 32 or 64 bits, not {self.bits!r}")
        if not 0 <= operator.index(self.offset) <= length - self.bits // 8:
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


def readable(data: ReadableBuffer) -> Memory:
    """Memory that a call reads. What Python cannot change is copied, so that no call changes it."""
    view = memoryview(data)
    if not view.readonly:
        return writable(data)
    copy = ctypes.create_string_buffer(view.tobytes(), view.nbytes + 1)
    return Memory(ctypes.addressof(copy), view.nbytes, copy)


def path_text(path: str) -> Memory:
    """Text as the kernel takes it: encoded as a path, and with a NUL byte at its end."""
    text = os.fsencode(path)
    if b"\0" in text:
        raise ValueError(f"a NUL byte in {path!r}")
    keeper = ctypes.create_string_buffer(text)
    return Memory(ctypes.addressof(keeper), len(text) + 1, keeper)


def number_of(value: object) -> int | None:
    """The number that `value` is, as Python's own calls take it, or None."""
    try:
        found = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None  # an array of numpy has __index__, and is a number where it holds just one
    if not -(1 << 63) <= found <= U64:
        raise OverflowError(f"{found} does not fit 64 bits")
    return found


def descriptor(fd: Descriptor) -> int | Call | Word:
    """What a descriptor is given as, less the objects of Python."""
    if isinstance(fd, Call | Word):
        return fd
    found = operator.index(fd.fileno() if hasattr(fd, "fileno") else fd)
    if not -INT_MAX <= found <= INT_MAX:
        raise OverflowError(f"{found} is no descriptor")
    return found
