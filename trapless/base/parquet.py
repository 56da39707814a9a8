# SPDX-License-Identifier: GPL-2.0-only
"""Reads Parquet files that strangers may have made, in a process that can do nothing else.

A kilobyte of Parquet may unpack to a billion numbers, and its decoders are large C++ programs. So a
child in a jail (jail.py) decodes: it gets the bytes of a file by a pipe, and answers with a table
in Arrow's own form, which the parent checks in full. Owns both ends. The jail bounds the memory and
the processor time of the child; the parent bounds what it takes of its answer. One child serves all
files; if a file ends it, the next file gets another child.
"""

from __future__ import annotations

import atexit
import errno
import io
import json
import os
import resource
import signal
import stat
import subprocess
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, BinaryIO

from trapless.base import jail
from trapless.base.console import TraplessError, printable
from trapless.base.damage import is_of_data
from trapless.base.tools import has_ended, kill

FILE_BYTES_MAX = 96 << 20
TABLE_BYTES_MAX = 160 << 20
"""The largest table of one file, unpacked. A recorder's files have 64 MB."""
VALUE_BYTES = 8
"""Bytes for each value, by which the number of values in a table is bounded: Python takes more."""
MEMORY_BYTES = 512 << 20
"""The memory that the child may take beside its own code."""
ANSWER_S, BUSY_FACTOR = 6.0, 10
"""Seconds of processor time for one file, and by the clock: a busy machine is no attack."""
WORDS_BYTES_MAX, TEXT_CHARS_MAX = 1 << 16, 300

MAGIC = b"PAR1"


class DamagedError(TraplessError):
    """A file that is not Parquet, or that takes more memory than our own tables."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} cannot be read: {reason}")
        self.reason = reason


def plain_file(path: Path) -> BinaryIO:
    """A file that is open for reading; OSError where it is another thing, as a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    return os.fdopen(descriptor, "rb")


def check(path: Path) -> None:
    """Raise DamagedError where a file's own description is damaged.

    OSError where it cannot be read. The rows are not looked at.
    """
    with plain_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 8, 0))
        end = file.read(8)
        length = 8 + int.from_bytes(end[:4], "little")
        if end[4:] != MAGIC or length > min(size, FILE_BYTES_MAX):
            raise DamagedError(str(path), "it has no end of a Parquet file")
        file.seek(size - length)
        _child.ask(str(path), {"footer": True}, MAGIC + file.read(length))


def read_table(
    path: Path, columns: Sequence[str] | None = None, bytes_max: int | None = None
) -> Any:
    """The table in a file, or these columns of it; a pyarrow.Table, of `bytes_max` at most.

    DamagedError says why there is none; OSError where the file cannot be read.
    """
    import pyarrow as pa

    with plain_file(path) as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise DamagedError(str(path), f"it has more than {FILE_BYTES_MAX >> 20} MB")
    wanted = None if columns is None else list(columns)
    most = TABLE_BYTES_MAX if bytes_max is None else min(bytes_max, TABLE_BYTES_MAX)
    answer = _child.ask(str(path), {"columns": wanted, "bytes": most}, data)
    try:
        with pa.ipc.open_stream(answer) as reader:
            table = reader.read_all()
        table.validate(full=True)
        return table if wanted is None else table.select(wanted)
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise DamagedError(str(path), _words(error)) from error


def _words(error: Exception) -> str:
    return printable(" ".join(str(error).split()))[:TEXT_CHARS_MAX]


class _Child:
    """The process that decodes. Several threads may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._answers, self._questions = Pipe(duplex=False)

    def ask(self, name: str, question: dict[str, object], data: bytes) -> bytes:
        """The answer to a question about the bytes of a file."""
        with self._lock:
            process = self._running()
            try:
                jail.allow(process.pid, ANSWER_S)
                self._questions.send_bytes(json.dumps(question).encode())
                self._questions.send_bytes(data)
                if not self._answers.poll(ANSWER_S * BUSY_FACTOR):
                    raise EOFError
                words = self._answers.recv_bytes(WORDS_BYTES_MAX).decode(errors="replace")
                answer = self._answers.recv_bytes(2 * TABLE_BYTES_MAX)  # with its description
            except (EOFError, OSError):
                raise DamagedError(name, self._ending(process)) from None
        if words:
            raise DamagedError(name, printable(words)[:TEXT_CHARS_MAX])
        return answer

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or has_ended(self._process):
            self.end()
            import pyarrow as pa

            packages = str(Path(pa.__file__).resolve().parents[1])
            (self._answers, output), (input_, self._questions) = Pipe(False), Pipe(False)
            with input_, output:
                self._process = jail.start(
                    "trapless.base.parquet",
                    packages=packages,
                    stdin=input_.fileno(),
                    stdout=output.fileno(),
                )
        return self._process

    def _ending(self, process: subprocess.Popen[bytes]) -> str:
        """End the process, and say why."""
        status = kill(process)
        self.end()
        if status == -signal.SIGSYS:
            return "its decoding did what no decoding must do, and the kernel ended it"
        if status in (-signal.SIGXCPU, -signal.SIGKILL):
            return f"its decoding took more than {ANSWER_S:g} s"
        return f"its decoding ended with status {status}"

    def end(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            kill(process)
        self._answers.close()
        self._questions.close()


_child = _Child()
atexit.register(_child.end)


# ---- The child -----------------------------------------------------------------------------------


def main() -> None:
    """Decode until the parent closes its pipe."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.set_cpu_count(1)
    sink = io.BytesIO()  # once, while its libraries may be opened
    table = pa.table({"a": [1, 2], "b": ["x", "y"], "c": [[1], [2]]})
    pq.write_table(table, sink, compression="zstd")
    _decode({"columns": None, "bytes": 1 << 20}, sink.getvalue())
    questions, answers = Connection(0, writable=False), Connection(1, readable=False)
    refusal = ""
    try:
        own = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        jail.enter(own + MEMORY_BYTES)
    except TraplessError as error:
        refusal = str(error)
    try:
        while True:
            question, data = json.loads(questions.recv_bytes()), questions.recv_bytes()
            words, answer = (refusal, b"") if refusal else _decode(question, data)
            del data
            answers.send_bytes(words.encode())
            answers.send_bytes(answer)
    except (EOFError, BrokenPipeError):  # the parent has ended
        return


def _decode(question: dict[str, Any], data: bytes) -> tuple[str, Any]:
    """Why there is no answer, or else the answer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if question.get("footer"):
            pq.read_metadata(pa.BufferReader(data))
            return "", b""
        table = _table(data, question["columns"], question["bytes"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table, max_chunksize=1 << 16)
        return "", sink.getvalue()
    except MemoryError:
        return f"it takes more than {MEMORY_BYTES >> 20} MiB", b""
    except Exception as error:  # a stranger's file may cause any error
        words = _words(error) or type(error).__name__
        if isinstance(error, (pa.ArrowException, OSError)) or is_of_data(error):
            return words, b""
        return f"an error of Trapless itself, please report it: {words}", b""


def _table(data: bytes, columns: list[str] | None, most: int) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False, memory_map=False)
    table = file.read(columns=columns, use_threads=False)
    values = sum(_values(column) for column in table.columns)
    if max(table.nbytes, VALUE_BYTES * values) > most:
        raise ValueError(f"it takes {table.nbytes:,} bytes of memory for {values:,} values")
    return table


def _values(column: Any) -> int:
    """How many values a column has, with those in its lists."""
    import pyarrow as pa

    count = len(column)
    while pa.types.is_list(column.type):
        column = pa.chunked_array([one.flatten() for one in column.chunks], column.type.value_type)
        count += len(column)
    if pa.types.is_nested(column.type):
        raise ValueError(f"no table of ours has a column of {column.type}"[:TEXT_CHARS_MAX])
    return count
