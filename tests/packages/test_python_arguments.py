# SPDX-License-Identifier: GPL-2.0-only
"""libtrapless for Python: what it takes for a number, a buffer and a path, and how long it keeps
memory. test_python_binding.py has batches, programs and event loops.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import errno
import mmap
import operator
import os
import pickle
import platform
from pathlib import Path

import numpy as np
import pytest

from libtrapless import Batch, Condition, Word
from libtrapless import number as number_of
from libtrapless.aio import AsyncBatch


class Number:
    """An integer that is no int."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


@pytest.fixture
def batch():
    with Batch(16) as fresh:
        yield fresh


@pytest.fixture
def file(tmp_path):
    with (tmp_path / "file").open("wb+", buffering=0) as file:
        file.write(bytes(range(100)))
        yield file


@pytest.mark.parametrize("kind", [Number, np.int64, np.uint8, np.array, int])
def test_an_integer_of_any_kind_is_the_number(batch, file, kind):
    buffer = bytearray(10)
    read = batch.pread(file, buffer, kind(20))
    batch.flush()
    assert (read.value, buffer) == (10, bytearray(range(20, 30)))
    calls = [
        batch.pwrite(file, b"hi", kind(4)),
        batch.write(kind(file.fileno()), b"abcdef", kind(3)),
        batch.add("lseek", file.fileno(), kind(7), kind(os.SEEK_SET)),
        batch.add(kind(number_of("lseek")), file.fileno(), kind(9), 0),
        batch.add("ftruncate", file.fileno(), kind(50)),
        batch.read(kind(file.fileno()), buffer),
    ]
    assert batch.flush() == 6
    assert [call.value for call in calls] == [2, 3, 7, 9, 0, 10]
    assert (os.pread(file.fileno(), 2, 4), os.fstat(file.fileno()).st_size) == (b"hi", 50)


def test_truth_is_a_number_as_everywhere_in_python(batch, file):
    calls = [batch.add("lseek", file.fileno(), True, False), batch.pwrite(file, b"x", True)]
    batch.flush()
    assert [call.value for call in calls] == [1, 1]


@pytest.mark.parametrize("other", ["20", b"20", 2.0, ctypes.c_int64(20), bytearray(8), None, []])
def test_what_is_no_number_is_refused_where_one_is_meant(batch, file, other):
    for queue in (
        lambda: batch.pread(file, bytearray(4), other),
        lambda: batch.pwrite(file, b"abc", other),
        lambda: batch.openat("/", other),
        lambda: batch.openat("/", 0, other),
        lambda: batch.store(Word(bytearray(8)), other),
        lambda: batch.read(other, bytearray(4)),
        lambda: batch.add(other) if other != "20" else batch.close_file(other),
    ):
        with pytest.raises(TypeError):
            queue()
    if other is not None:
        with pytest.raises(TypeError):
            batch.write(file, b"abc", other)
    assert len(batch) == 0


def test_numbers_out_of_range_are_refused(batch, file):
    for number in (1 << 64, -(1 << 63) - 1, 1 << 200):
        with pytest.raises(OverflowError):
            batch.add("lseek", file.fileno(), number, 0)
        with pytest.raises(OverflowError):
            batch.pread(file, bytearray(4), number)
    for descriptor in (1 << 31, 1 << 32, (1 << 32) + file.fileno(), -(1 << 33)):
        with pytest.raises(OverflowError):
            batch.read(descriptor, bytearray(4))
    for nr in (-1, 1 << 32):
        with pytest.raises(OverflowError):
            batch.add(nr)
    largest = batch.add("lseek", file.fileno(), (1 << 64) - 1, os.SEEK_SET)
    least = batch.pread(file, bytearray(4), -(1 << 63))
    batch.flush()
    assert (largest.value, least.value) == (-errno.EINVAL, -errno.EINVAL)


def test_what_raises_while_it_is_asked_leaves_nothing_queued(batch, file):
    class Wrong:
        def __index__(self):
            raise ZeroDivisionError

        fileno = __fspath__ = __index__

    buffer = bytearray(8)
    for queue in (
        lambda: batch.add("read", 0, buffer, Wrong()),
        lambda: batch.read(Wrong(), buffer),
        lambda: batch.pread(file, buffer, Wrong()),
        lambda: batch.openat(Wrong()),
        lambda: batch.write(file, buffer, Wrong()),
    ):
        with pytest.raises(ZeroDivisionError):
            queue()
    assert len(batch) == 0
    buffer.extend(b"nobody keeps it")


def test_text_is_refused_where_bytes_are_written(batch, file):
    for queue in (
        lambda: batch.write(file, "hello"), lambda: batch.pwrite(file, "hello", 0),
        lambda: batch.read(file, "hello"), lambda: batch.pread(file, "hello", 0),
        lambda: batch.write(file, "hello", 3), lambda: Word("12345678"),
    ):  # fmt: skip
        with pytest.raises(TypeError):
            queue()
    assert len(batch) == 0


def test_read_only_memory_is_never_written(batch, file):
    for fixed in (b"fixed", memoryview(b"fixed"), memoryview(bytearray(5)).toreadonly()):
        for queue in (batch.read, lambda file, fixed: batch.pread(file, fixed, 0)):
            with pytest.raises(TypeError, match="cannot write"):
                queue(file, fixed)
    with pytest.raises(TypeError, match="cannot write"):
        batch.store(Word(b"12345678"), 1)


def test_views_of_memory_are_where_they_are(batch, file):
    whole = bytearray(100)
    parts = [memoryview(whole)[10:20], memoryview(whole)[50:], np.frombuffer(whole, "u1")[30:35]]
    calls = [batch.pread(file, part, 0) for part in parts]
    batch.flush()
    assert [call.value for call in calls] == [10, 50, 5]
    assert whole[10:20] == bytes(range(10)) and whole[50:] == bytes(range(50))
    assert whole[30:35] == bytes(range(5)) and not any(whole[20:30]) and not any(whole[:10])
    empty = batch.pread(file, bytearray(), 0)
    for scattered in (memoryview(whole)[::2], np.zeros((4, 4))[:, 1], np.zeros(8)[::-1]):
        with pytest.raises((TypeError, BufferError, ValueError)):
            batch.read(file, scattered)
        with pytest.raises((TypeError, BufferError, ValueError)):
            batch.write(file, scattered)
    batch.flush()
    assert empty.value == 0
    released = memoryview(bytearray(8))
    released.release()
    with pytest.raises(ValueError):
        batch.read(file, released)


def test_a_view_that_is_released_meanwhile_keeps_its_memory(batch, file):
    whole = bytearray(64)
    view = memoryview(whole)[:10]
    call = batch.pread(file, view, 0)
    with contextlib.suppress(BufferError):  # it may say so
        view.release()
    with pytest.raises(BufferError):
        whole.extend(b"no room")
    batch.flush()
    assert (call.value, whole[:10]) == (10, bytes(range(10)))


def test_memory_is_free_once_a_batch_is_closed(file):
    buffer, mapped = bytearray(100), mmap.mmap(-1, 8192)
    with pytest.raises(ZeroDivisionError), Batch(8) as batch:
        left = batch.read(file, buffer)
        batch.read(file, mapped)
        batch.store(Word(buffer, 8), 3)
        raise ZeroDivisionError
    buffer.extend(b"free")
    mapped.close()
    with pytest.raises(RuntimeError, match="not complete"):
        left.result()
    waiting = AsyncBatch(8)
    waiting.read(file, buffer)
    waiting.close()
    buffer.extend(b"free")


def test_memory_of_a_call_that_found_no_room_is_free(file):
    buffer = bytearray(8)
    with Batch(1) as batch:
        batch.add("getppid")
        with pytest.raises(BlockingIOError):
            batch.read(file, buffer)
        buffer.extend(b"free")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_batch_and_its_calls_are_neither_copied_nor_pickled(batch, copied):
    call = batch.add("getppid")
    waiting = AsyncBatch(1)
    for one in (batch, call, waiting):
        with pytest.raises(TypeError, match="cannot be copied"):
            copied(one)
    waiting.close()
    assert batch.flush() == 1


def test_a_call_whose_batch_was_closed_says_so(batch):
    done, other = batch.add("getppid"), Batch(4)
    batch.flush()
    dropped = other.openat("/")
    other.close()
    batch.close()
    assert done.result() == os.getppid()
    with pytest.raises(RuntimeError, match=r"openat: dropped> .*: the batch was closed$"):
        dropped.result()
    with Batch(4) as other, pytest.raises(ValueError, match="is not queued in this batch"):
        other.close_file(dropped)


def test_errors_name_the_path_where_python_does(batch, tmp_path):
    absent, other = str(tmp_path / "absent"), str(tmp_path / "other")
    pairs = [
        (batch.openat(absent), lambda: os.open(absent, 0)),
        (batch.openat(os.fsencode(absent)), lambda: os.open(os.fsencode(absent), 0)),
        (batch.openat(Path(absent)), lambda: os.open(Path(absent), 0)),
        (batch.add("newfstatat", -100, absent, bytearray(144), 0), lambda: os.stat(absent)),
        (batch.add("unlinkat", -100, absent, 0), lambda: os.unlink(absent)),
        (batch.add("mkdirat", -100, absent + "/a", 0o777), lambda: os.mkdir(absent + "/a")),
        (batch.add("renameat", -100, absent, -100, other), lambda: os.rename(absent, other)),
        (batch.add("truncate", absent, 0), lambda: os.truncate(absent, 0)),
    ]
    if platform.machine() == "x86_64":
        pairs += [
            (batch.add("stat", absent, bytearray(144)), lambda: os.stat(absent)),
            (batch.add("mkdir", absent + "/a", 0o777), lambda: os.mkdir(absent + "/a")),
            (batch.add("rename", absent, other), lambda: os.rename(absent, other)),
            (batch.add("symlink", absent, str(tmp_path)), lambda: os.symlink(absent, tmp_path)),
        ]
    batch.flush()
    for call, by_python in pairs:
        with pytest.raises(OSError) as wanted:
            by_python()
        with pytest.raises(type(wanted.value)) as caught:
            call.result()
        names = operator.attrgetter("errno", "strerror")
        assert names(caught.value) == names(wanted.value)
        assert str(caught.value.filename) == str(wanted.value.filename)
        assert str(caught.value.filename2) == str(wanted.value.filename2)


def test_errors_without_a_path_name_the_call(batch):
    calls = [batch.close_file(-1), batch.add("write", 1 << 30, "no path", 7)]
    batch.flush()
    for call, name in zip(calls, ("close", "write"), strict=True):
        with pytest.raises(OSError, match=rf"Bad file descriptor \({name}\)") as caught:
            call.result()
        assert caught.value.filename is None


def test_calls_that_cannot_be_made_are_refused(batch):
    for wrong in ("a\0b", b"a\0b"):
        with pytest.raises(ValueError, match="NUL"):
            batch.openat(wrong)
    for wrong in (bytearray(b"/"), 3, None):
        with pytest.raises(TypeError):
            batch.openat(wrong)
    with pytest.raises(ValueError):
        batch.jump(batch.add("getppid"), 99)
    for bits in (0, 16, 128):
        with pytest.raises(ValueError):
            Word(bytearray(64), 0, bits)
    with pytest.raises(TypeError):
        Batch("8")
    with pytest.raises(ValueError):
        batch.jump(batch.add("getppid"), Condition.ALWAYS, Batch(1).add("getppid"))
    assert batch.flush() == 2
