# SPDX-License-Identifier: GPL-2.0-only
"""Writes and reads recordings: samples as columns on disk, which survive a kill of the recorder.

A recording is a folder. meta.json describes the target and the columns, and is there before the
first row. rows-000000.parquet and its successors hold the rows, one row group each; a file is
flushed to the disk before it gets its name, so that every file with its name is whole after a kill
or a power cut. symbols.parquet has the target's symbols, where they are known. end.json has the
counts, and is missing when the recorder was killed. Any reader of Parquet opens the folder.

A machine that is restarted has other addresses, perhaps another kernel: each boot after the first
is a recording of its own, in the folder boot-2 and its successors. Rows that were taken after the
kernel was last known to run show a dead kernel's memory, and are left out when rows are read.

A recording may be a stranger's: a process in a jail decodes its files, and reading it has one bound
of memory (damage_as_errors()).

A row's time is first deadline + slot * interval + lag, with the lag in steps of 16 ns; t_ns itself
is not stored.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import resource
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trapless.base import json_text, parquet
from trapless.base.console import TraplessError
from trapless.base.damage import is_of_data
from trapless.base.parquet import DamagedError
from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import visible
from trapless.peek.kernel import counters
from trapless.peek.kernel.counters import Counter, Reading
from trapless.peek.sampling.sample_rows import GROUP, End, Head, Rows, are_groups, first_deadline

FORMAT = 1
META_FILE = "meta.json"
END_FILE = "end.json"
SYMBOLS_FILE = "symbols.parquet"
COUNTS_FILE = "counts.parquet"
SEGMENTS_MAX = 1_000_000
PROBLEMS_MAX = 20
SEGMENT_ROWS_MAX = 200_000
SEGMENT_BYTES_MAX = 64 << 20
"""The bytes of rows in memory at which a segment is written."""
READ_MEMORY_BYTES = 2 << 30
"""By how much this process's data may grow while it reads recordings: a recorder's own take a tenth
of it."""
KEPT_BYTES_MAX = 64 << 20
"""The bound of a table beside the rows, because its values become objects."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of writing, which no damaged file can cause."""
SEGMENT_AGE_S = 20.0
"""The age at which a segment is written: a kill loses no older rows."""

SEGMENT = re.compile(r"rows-([0-9]{6})\.parquet")
COUNTERS = (
    *(*counters.INTERRUPTS, counters.DEVICE, counters.DELAY),
    *(counters.SOFTIRQ + name.lower() for name in counters.SOFTIRQS),
)

ALIVE = "alive_slot"
"""The key in end.json for the last slot in which a kernel that is gone is known to have run."""
FIRST = "first_ns"
"""The key in each segment's metadata for the deadline of slot 0."""
DERIVED = frozenset({"t_ns"})
ROUNDED = frozenset({"lag_ns", "cost_ns"})
ROUND_NS = 16
"""Times are rounded down to it: the rest is the clock's noise, a third of all bytes otherwise."""


def _segment_name(number: int) -> str:
    return f"rows-{number:06d}.parquet"


def boot_name(number: int) -> str:
    """The folder in a recording's that has a boot after the first, which has the number 1."""
    return f"boot-{number}"


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is on the disk as a whole, or not at all."""
    partial = path.with_name(f".{path.name}.part")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def table_of(rows: Rows, drop: frozenset[str] = DERIVED) -> pa.Table:
    """Rows as columns of Arrow; other fields than numbers become fixed-size binary."""
    columns: dict[str, pa.Array] = {}
    for name in rows.dtype.names or ():
        if name in drop:
            continue
        column = np.array(rows[name])  # a copy, in one piece
        if name in ROUNDED:
            column -= column % ROUND_NS
        if column.dtype.kind == "V":
            size = column.dtype.itemsize
            data = pa.py_buffer(column.tobytes())
            columns[name] = pa.Array.from_buffers(pa.binary(size), len(column), [None, data])
        else:
            columns[name] = pa.array(column)
    return pa.table(columns)


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    growing = [
        name
        for name in table.column_names
        if name.startswith("run_ns.") or name.endswith(".nr_switches")
    ]
    pq.write_table(
        table,
        sink,
        compression="zstd",
        use_dictionary=[name for name in table.column_names if name not in ("slot", *growing)],
        column_encoding={"slot": "DELTA_BINARY_PACKED"} if "slot" in table.column_names else None,
        row_group_size=len(table),
        write_statistics=["slot"],
    )
    return bytes(sink.getvalue())


class Recorder:
    """Writes a recording. Use it as a context manager; close(end) marks it as complete. One thread.

    PeekError says which file could not be written; the files before it are whole.
    """

    def __init__(
        self,
        folder: Path,
        head: Head,
        about: Mapping[str, Any],
        symbols: Iterable[tuple[int, str]] = (),
    ) -> None:
        self.folder = folder
        self._head = head
        self._waiting: list[Rows] = []
        self._began = 0.0
        self._segments = 0
        self._full = False  # a write has failed
        self._last: tuple[int, int] | None = None  # slot and time of the last row
        self._about = dict(about)
        self._symbols = list(symbols)

    def __enter__(self) -> Recorder:
        meta = {
            "format": FORMAT,
            "interval_ns": self._head.interval_ns,
            "monotonic_ns": self._head.monotonic_ns,
            "realtime_ns": self._head.realtime_ns,
            "groups": self._head.groups,
            "threads": self._head.threads,
            "plan": self._head.text,
            "about": self._about,
        }
        try:
            self.folder.mkdir(parents=True)
        except FileExistsError as error:
            raise PeekError(
                f"{self.folder} exists already; a recording needs a folder of its own"
            ) from error
        except OSError as error:
            raise PeekError(f"{self.folder}: {error.strerror}") from error
        self._save(META_FILE, json.dumps(meta, indent=2).encode() + b"\n")
        if self._symbols:
            addresses = np.array([address for address, _ in self._symbols], "<u8")
            names = pa.array([name for _, name in self._symbols])
            table = pa.table({"address": addresses, "name": names})
            self._save(SYMBOLS_FILE, _parquet(table))
        return self

    def __exit__(self, *_: object) -> None:
        if not self._full:
            self._write()

    def _save(self, name: str, data: bytes) -> None:
        try:
            _write_whole(self.folder / name, data)
        except OSError as error:
            self._full = True
            before = "what was recorded before is whole" if self._segments else "it has no samples"
            raise PeekError(f"{self.folder / name}: {error.strerror}; {before}") from error

    @property
    def segments(self) -> int:
        """How many segments are on the disk."""
        return self._segments

    def keep(self, name: str, table: pa.Table) -> None:
        """Store a table beside the rows; it replaces the older one of that name."""
        self._save(name, _parquet(table))

    def add(self, rows: Rows) -> None:
        """Add rows; a segment is written when it is large or old enough."""
        if not len(rows):
            return
        if not self._waiting:
            self._began = time.monotonic()
        self._waiting.append(rows)
        self._last = int(rows["slot"][-1]), int(rows["t_ns"][-1])
        count = sum(len(batch) for batch in self._waiting)
        if (
            count >= SEGMENT_ROWS_MAX
            or count * rows.dtype.itemsize >= SEGMENT_BYTES_MAX
            or time.monotonic() - self._began >= SEGMENT_AGE_S
        ):
            self._write()

    def _write(self) -> None:
        if self._waiting:
            rows, self._waiting = np.concatenate(self._waiting), []
            first = str(first_deadline(rows, self._head.interval_ns))
            table = table_of(rows).replace_schema_metadata({FIRST: first})
            self._save(_segment_name(self._segments), _parquet(table))
            self._segments += 1

    def close(self, end: End | None, alive_ns: int | None = None) -> None:
        """Write the last segment and, where sampling ended by itself, its counts.

        `alive_ns`: when the kernel was last known to run, where it was restarted.
        """
        self._write()
        if end is not None:
            counts = {**asdict(end), "ending": end.ending.name.lower(), "segments": self._segments}
            if alive_ns is not None and self._last is not None:
                slot, t_ns = self._last
                dead = max(t_ns - alive_ns, 0) // self._head.interval_ns
                counts |= {"ending": "restart", ALIVE: max(slot - dead, 0)}
            self._save(END_FILE, json.dumps(counts, indent=2).encode() + b"\n")


@dataclass(frozen=True)
class Recording:
    """A saved recording. `problems` says for people what is missing or damaged."""

    folder: Path
    meta: Mapping[str, Any]
    end: Mapping[str, Any] | None
    segments: tuple[Path, ...]
    problems: tuple[str, ...]

    @classmethod
    def open(cls, folder: Path) -> Recording:
        """The recording in a folder; PeekError where it is none."""
        try:
            parquet.plain_file(folder / META_FILE).close()
        except OSError as error:
            raise PeekError(
                f"{folder}: not a recording, or not yours to read: its {META_FILE}: "
                f"{error.strerror}"
            ) from error
        meta = _json(folder / META_FILE)
        if meta is None or meta.get("format") != FORMAT:
            raise PeekError(
                f"{folder}: not a recording, or its {META_FILE} is damaged, which describes the "
                "rows and is written first"
            )
        if not are_groups(meta.get("groups"), meta.get("threads")):
            raise PeekError(f"{folder / META_FILE} is damaged: its groups are not a sampler's")
        end = _json(folder / END_FILE)
        number = end.get("segments") if end else 0
        if type(number) is not int or not 0 <= number <= SEGMENTS_MAX:
            raise PeekError(f"{folder / END_FILE} is damaged: {str(number)[:40]!r} segments")
        problems, segments = [], []
        there = sorted(name for name in os.listdir(folder) if SEGMENT.fullmatch(name))
        for path in (folder / name for name in there):
            try:
                parquet.check(path)
                segments.append(path)
            except (OSError, DamagedError) as error:
                reason = error.reason if isinstance(error, DamagedError) else error.strerror
                problems.append(visible(f"{path.name} is damaged and left out ({reason})"))
        problems += _missing(there, number if end else None)
        if end is None:
            problems.append("the recorder was killed, or could not write: the last rows are lost")
        return cls(folder, meta, end, tuple(segments), tuple(problems))

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The rows in order, one segment at a time, so that memory stays bounded."""
        for path in self.segments:
            yield self._read(path, columns)

    def _read(self, path: Path, columns: Sequence[str] | None) -> pa.Table:
        """The rows of a segment that show a kernel that ran."""
        wanted = None if columns is None else list(dict.fromkeys((*columns, "slot")))
        table = parquet.read_table(path, wanted)
        if self._alive is not None:
            table = table.filter(pc.less_equal(table["slot"], self._alive))
        return table if columns is None else table.select(list(columns))

    @property
    def _alive(self) -> int | None:
        """The last slot in which a kernel that is gone is known to have run."""
        alive = None if self.end is None else self.end.get(ALIVE)
        return None if alive is None else int(alive)

    def left_out(self) -> int:
        """The number of rows that are not read, because they show a kernel that was gone."""
        count = 0
        for path in reversed(self.segments if self._alive is not None else ()):
            slots = parquet.read_table(path, ["slot"])["slot"]
            dead = pc.sum(pc.greater(slots, self._alive)).as_py() or 0
            count += dead
            if dead < len(slots):
                break
        return count

    def boots(self) -> list[Recording]:
        """This recording and those of the boots that followed: the first BOOTS_MAX, in order.

        Boots without a row are left out where others have some.
        """
        folders = self.folder.glob(boot_name(0)[:-1] + "[0-9]*")
        numbers = {path: path.name.rpartition("-")[2] for path in folders}
        boots = [path for path, number in numbers.items() if number.isascii() and number.isdigit()]
        later = sorted(boots, key=lambda path: int(numbers[path]))
        first, shown = self, later[: limits.BOOTS_MAX - 1]
        if len(shown) < len(later):
            text = f"{len(later) - len(shown):,} later boots are left out, from {later[len(shown)]}"
            first = replace(self, problems=(*self.problems, visible(text)))
        opened = [first, *(Recording.open(path) for path in shown)]
        lived = [one for one in opened if len(opened) == 1 or one.slots()]
        if lived and len(lived) < len(opened):
            text = f"boots without a sample are left out: {len(opened) - len(lived)}"
            lived[0] = replace(lived[0], problems=(*lived[0].problems, text))
        return lived or opened[:1]

    def times_ns(self, table: pa.Table) -> npt.NDArray[np.int64]:
        """The time of each row of a table with slot and lag_ns, in ns from the first deadline."""
        slots: npt.NDArray[np.int64] = table["slot"].to_numpy().astype(np.int64)
        lags: npt.NDArray[np.int64] = table["lag_ns"].to_numpy().astype(np.int64)
        return slots * int(self.meta["interval_ns"]) + lags

    def kept(self, name: str) -> pa.Table | None:
        """A table that was stored beside the rows; None where there is none that can be read."""
        try:
            return parquet.read_table(self.folder / name, bytes_max=KEPT_BYTES_MAX)
        except (OSError, DamagedError):
            return None

    def rates(self) -> dict[int, dict[str, float]]:
        """The kernel's own rates per second, by CPU and name; empty if they were not read."""
        table = self.kept(COUNTS_FILE)
        if table is None or not len(table):
            return {}
        all_ = []
        for column in table.schema:
            cpu, _, name = column.name.partition(" ")
            if name in COUNTERS and GROUP.fullmatch(f"cpu{cpu}"):
                size = column.type.bit_width // 8
                all_.append((column.name, Counter(int(cpu), name, 0, size)))
        first, last = (
            Reading(row["time_ns"], tuple(row[name] for name, _ in all_))
            for row in table.take([0, len(table) - 1]).to_pylist()
        )
        return counters.rates([one for _, one in all_], first, last)

    def slots(self) -> int:
        """The number of slots up to the last one with a row."""
        for path in reversed(self.segments):
            last = self._read(path, ["slot"])["slot"]
            if len(last):
                return int(last[-1].as_py()) + 1
        return 0

    def symbols(self) -> list[tuple[int, str]]:
        """(address as linked, name) of the target's symbols; empty where they were not recorded."""
        path = self.folder / SYMBOLS_FILE
        if not path.exists():
            return []
        table = parquet.read_table(path)
        return list(zip(table["address"].to_pylist(), table["name"].to_pylist(), strict=True))


def _missing(there: Sequence[str], count: int | None) -> list[str]:
    """The segments that are missing, in words; `count` is how many were written, if known."""
    if count is None:
        count = int(there[-1][5:11]) + 1 if there else 0
    names = {name for name in there if int(name[5:11]) < count}
    lacking = (name for name in map(_segment_name, range(count)) if name not in names)
    shown = [f"{name} is missing" for name in itertools.islice(lacking, PROBLEMS_MAX)]
    more = count - len(names) - len(shown)
    return [*shown, f"{more:,} more are missing"] if more else shown


@contextmanager
def damage_as_errors(folder: Path) -> Iterator[None]:
    """A block that reads a recording of anybody: damage becomes a PeekError, and memory has a
    bound."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    has = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    most = has + READ_MEMORY_BYTES
    bound = [one for one in (most, soft, hard) if one != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(bound), hard))
    try:
        yield
    except (TraplessError, BrokenPipeError):
        raise
    except OSError as error:
        if error.errno in NO_ROOM:
            raise PeekError(f"the output cannot be written: {error.strerror}") from error
        if not str(error.filename or folder).startswith(str(folder)):
            raise  # of something else
        raise _not_ours(folder, error) from error
    except MemoryError as error:
        raise PeekError(f"{folder}: takes more memory than any recording does") from error
    except Exception as error:
        if not (isinstance(error, pa.ArrowException) or is_of_data(error)):
            raise
        raise _not_ours(folder, error) from error
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _not_ours(folder: Path, error: Exception) -> PeekError:
    words = visible(f"{type(error).__name__}: {error}")[:200]
    return PeekError(f"{folder}: not what a recorder writes ({words})")


def _json(path: Path) -> dict[str, Any] | None:
    try:
        with parquet.plain_file(path) as file:
            data = json_text.parse(file.read())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None
