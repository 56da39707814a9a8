# SPDX-License-Identifier: GPL-2.0-only
"""Unpacks an image into a file without a name, which is then read as any other.

Owns the start and the end of the process that unpacks (unpacker.py), the file, and the checks of
what that process says. The file is in the cache folder, has holes where memory is zero, and is gone
once it is closed.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from trapless.base import cache, jail, json_text
from trapless.base.missing import remedy
from trapless.base.paths import cache_dir
from trapless.base.tools import kill, wait
from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import visible
from trapless.peek.kernel.memories import kdump
from trapless.peek.kernel.memories.elf_core import PHYSICAL_MAX, Registers, without_overlaps
from trapless.peek.kernel.memories.formats import Kind
from trapless.peek.kernel.memories.pieces import (
    CHUNK_BYTES,
    END,
    PIECE,
    SilentError,
    exactly,
)
from trapless.peek.kernel.memory import PAGE_BYTES, Region, raw_layouts

BY_PYARROW = (Kind.ZSTD, Kind.LZ4, Kind.AVML)
FREE_BYTES_MIN = 256 << 20
"""What is left of a file system."""
LOOK_BYTES = 64 << 20
"""After this much, the room on the file system is looked at."""


@dataclass(frozen=True)
class Unpacked:
    """An unpacked image. `layouts` is empty where the file is another image, of any format."""

    descriptor: int
    size: int
    layouts: Sequence[Sequence[Region]] = ()
    registers: Sequence[Registers] = ()


def unpack(name: str, descriptor: int, kind: Kind) -> Unpacked:
    """Unpack an image that is open; PeekError says why it cannot be unpacked."""
    library = kdump.library_path() if kind is Kind.KDUMP else ""
    packages, pyarrow = "", importlib.util.find_spec("pyarrow")
    if pyarrow is not None and pyarrow.origin is not None:
        packages = str(Path(pyarrow.origin).parents[1])
    elif kind in BY_PYARROW:
        raise PeekError(
            f"{name} is packed ({kind.value}), and pyarrow reads that; {remedy('pyarrow')}"
        )
    with (
        _nameless_file() as file,
        jail.start(
            "trapless.peek.kernel.memories.unpacker",
            *(str(descriptor), kind.value, library),
            packages=packages,
            descriptors=[descriptor],
            stdin=subprocess.DEVNULL,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            seconds = limits.UNPACK_S + os.fstat(descriptor).st_size / limits.UNPACK_BYTES_S
            jail.allow(process.pid, seconds)
            said = _receive(name, process.stdout.fileno(), file.fileno(), seconds)
            if isinstance(said, dict) and "error" in said:
                raise PeekError(
                    f"{name} ({kind.value}) cannot be unpacked: {visible(str(said['error']))}"
                )
            return _checked(name, said, file.fileno())
        except SilentError:
            raise PeekError(f"{name} is damaged: {_ending(process, seconds)}") from None
        except (AttributeError, LookupError, TypeError, ValueError):
            raise PeekError(f"{name}: the process that unpacks it says what it must not") from None
        finally:
            kill(process)


def _nameless_file() -> IO[bytes]:
    folder = cache_dir()
    with cache.explained(folder / "image"):
        folder.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=folder)


def _receive(name: str, pipe: int, file: int, seconds: float) -> Any:
    """Put the pieces into the file; the last message. SilentError where there is none in time: the
    limit of processor time ends no process that sleeps."""
    since_look, end_s = LOOK_BYTES, time.monotonic() + seconds * limits.BUSY_FACTOR
    while True:
        place, length = PIECE.unpack(exactly(pipe, PIECE.size, end_s))
        if (length > 2 * CHUNK_BYTES and place != END) or length > limits.ANSWER_BYTES_MAX:
            raise ValueError(f"a piece of {length} bytes")
        data = exactly(pipe, length, end_s)
        if place == END:
            return json_text.parse(data)
        if place + length > limits.UNPACKED_BYTES_MAX:
            raise ValueError(f"a piece at {place:#x}")
        since_look += length
        if since_look >= LOOK_BYTES:
            since_look, disk = 0, os.fstatvfs(file)
            if disk.f_bavail * disk.f_frsize < FREE_BYTES_MIN:
                raise PeekError(_no_room(name))
        began_s = time.monotonic()
        try:
            while data:  # a disk that becomes full may take a part
                written = os.pwrite(file, data, place)
                data, place = data[written:], place + written
        except OSError as error:
            raise PeekError(f"{_no_room(name)} ({error.strerror})") from error
        end_s += time.monotonic() - began_s  # a slow disk is not the process's fault


def _no_room(name: str) -> str:
    return (
        f"{name} takes more room unpacked than there is in {cache_dir()}; "
        "TRAPLESS_CACHE=FOLDER names another folder"
    )


def _ending(process: subprocess.Popen[bytes], seconds: float) -> str:
    """Why a process has ended without its last message."""
    try:
        status = wait(process, limits.GRACE_S)
    except subprocess.TimeoutExpired:
        return f"unpacking it took more than {seconds * limits.BUSY_FACTOR:.0f} s"
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"unpacking it took more than {seconds:.0f} s of processor time"
    if status == -signal.SIGSYS:
        return "unpacking it did what no unpacking must do, and the kernel ended it"
    return f"unpacking it ended with status {status}"


def _checked(name: str, said: Any, file: int) -> Unpacked:
    """The image that the process in the jail has described; ValueError, or another error of its
    data, where it is none."""
    size = _number(said.get("size", said.get("file", said.get("ram"))), limits.UNPACKED_BYTES_MAX)
    layouts: list[list[Region]] = []
    if "ram" in said:
        layouts = raw_layouts(size)
    elif "regions" in said:
        regions = [
            Region(
                _number(start, PHYSICAL_MAX), _number(length, PHYSICAL_MAX), _number(offset, size)
            )
            for start, length, offset in said["regions"]
        ]
        if any(one.offset + one.length > size or one.end > PHYSICAL_MAX for one in regions):
            raise ValueError
        layouts = [without_overlaps([one for one in regions if one.length])]
    if size < PAGE_BYTES or (layouts and not 0 < len(layouts[0]) <= limits.REGIONS_MAX):
        raise ValueError
    registers = [
        {str(key): _number(value, 1 << 64) for key, value in one.items()}
        for one in said.get("registers", ())[: limits.CPUS_MAX]
    ]
    try:
        os.truncate(file, size)
    except OSError as error:  # larger than any file of this file system
        raise PeekError(f"{_no_room(name)} ({error.strerror})") from error
    return Unpacked(os.dup(file), size, layouts, registers)


def _number(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError
    return value
