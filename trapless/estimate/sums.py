# SPDX-License-Identifier: GPL-2.0-only
"""The sums of an estimate: what a trap costs, what a batch of N would save for each call.

A batch of N takes one trap, by `lseek` on a device that does nothing, and N times the module's own
loop with a handler that does nothing. A plain call takes a trap, the kernel's way to its handler,
and the handler. What a batch saves is therefore a call without a handler, less the N-th part of the
batch.

The kernel's way to a handler is a tree of comparisons with the call's number, and each call has one
of its own. It cannot be measured, but it lies between two ways that can: the kernel does not search
for a number beyond all calls, and searches to the end for one among them that is no call. The ways
of 17 calls on each of three kernels took WAY_LOW to WAY_HIGH of this difference, by instructions;
WAY is the middle of the kernels' means (0.78, 0.92, 0.93).

A compound call for a directory (TL_NR_SCANDIR) takes the names as getdents64 does. For each name it
looks up the file, takes its attributes and copies them. fstat, without its trap, takes attributes
and copies them, too. The lookup cannot be measured: it takes more than nothing, and less than the
path walk of statx. So the compound call lies between two sums of calls that can be measured. By
instructions on three kernels it took 0.22 to 0.33 of the difference between the two; LOOKUP is the
middle, and the interval reaches from one sum to the other.

Each sum is made within one process, where all its parts lie in the same places, and the value is
the median over processes. This file owns sums and intervals, and the refusal where readings differ.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trapless.base.console import TraplessError
from trapless.estimate.estimated_machine import LOOPS, loop_by_table, loop_directly
from trapless.estimate.placements import Reading

HALVES_DIFFER_MAX = 0.05
CONFIDENCE = 0.95
BATCHES = (1, 2, 3, 4, 8, 16, 32, 64, 128)
URING_BATCHES = (1, 8, 32, 128)
REQUEST_N = 128
MIXES = ("one", "files", "statx", "sockets", "random", "rare")
"""The mixes of stat/estimate/subjects.c."""
NO_CALL, BEYOND, BY_INT = "nosys", "beyond", "int80"
WAY_LOW, WAY, WAY_HIGH = 0.5, 0.85, 1.1
DIRECTORY_N = 256
"""Files of the directory: LISTING_FILES of stat/estimate/listing.h."""
LOOKUP = 0.27


@dataclass(frozen=True)
class Call:
    """A row of the report: how the program names it, how people do, and how often it crosses."""

    subject: str
    title: str
    crossings: int = 1


CALLS = (
    Call("getpid", "getpid"),
    Call("getppid", "getppid"),
    Call("pread1", "pread of 1 B, cached"),
    Call("pread4k", "pread of 4 KB, cached"),
    Call("brk", "sbrk within a page"),
    Call("write", "write of 1 B to /dev/null"),
    Call("pwrite1", "pwrite of 1 B, tmpfs"),
    Call("stat", "stat of /dev/null"),
    Call("openclose", "openat and close", crossings=2),
)


@dataclass(frozen=True)
class Value:
    """Nanoseconds: the median over processes, and an interval for it."""

    ns: float
    low: float
    high: float

    def text(self, width: int = 0) -> str:
        """The number, with no more digits than its interval allows: a tenth where that is known to
        less than a nanosecond.

        >>> Value(36.24, 36.1, 36.4).text(), Value(36.24, 34.0, 39.2).text(6)
        ('36.2', '    36')
        """
        return f"{self.ns:{width}.{self.digits}f}"

    @property
    def digits(self) -> int:
        """How many digits behind the point are known."""
        return int(self.high - self.low < 1)

    def as_json(self) -> dict[str, float]:
        return {"ns": round(self.ns, 2), "low": round(self.low, 2), "high": round(self.high, 2)}


@dataclass(frozen=True)
class CallEstimate:
    """One call: as it is, and in a batch of each N."""

    call: Call
    plain: Value
    least: float
    batch: dict[int, Value]
    saved: dict[int, Value]

    @property
    def break_even(self) -> int | None:
        """The smallest N that was measured and saves something beyond doubt."""
        return next((n for n, value in self.saved.items() if value.low > 0), None)


@dataclass(frozen=True)
class DirectoryEstimate:
    """An entry of a directory with its attributes: by getdents64 and statx, and by tl_scan."""

    plain: Value
    compound: Value
    saved: Value


@dataclass(frozen=True)
class Estimate:
    """All of it, in nanoseconds."""

    trap: Value
    trap_least: float
    request: dict[str, Value]
    mixes: dict[str, tuple[Value, Value]]  # a request: through the table, and hot calls directly
    calls: tuple[CallEstimate, ...]
    directory: DirectoryEstimate
    floors: dict[str, Value]
    uring: dict[str, dict[int, Value]]
    uring_absent: str
    by_int: tuple[Value, dict[int, Value]] | None
    """getpid by `int $0x80`, and what a batch that is entered by it saves of each call."""
    supervisor_path: Value
    supervisor_saved: tuple[float, float]
    clock_ghz: float
    rounds: int
    placements: int
    worst_half: float


def interval(values: Sequence[float]) -> Value:
    """The median, and an interval that holds the true one with CONFIDENCE, whatever the
    distribution: between the k-th smallest and the k-th largest value.

    >>> interval([float(n) for n in range(1, 17)])
    Value(ns=8.5, low=4.0, high=13.0)
    """
    ordered, count = sorted(values), len(values)
    tail, k = 0.0, 0
    while k < count // 2:
        tail += 2 * math.comb(count, k) / 2**count
        if tail > 1 - CONFIDENCE:
            break
        k += 1
    edge = max(k - 1, 0)
    return Value(statistics.median(ordered), ordered[edge], ordered[count - 1 - edge])


def bare(reading: Reading, way: float = WAY) -> float:
    """A call without its handler, in nanoseconds, if the way to it takes that part of the longest
    way."""
    return without_handler(reading.ns(BEYOND), reading.ns(NO_CALL), way)


def without_handler(beyond: float, no_call: float, way: float = WAY) -> float:
    """The same from two readings of any unit.

    >>> without_handler(200.0, 240.0, 0.5)
    220.0
    """
    return beyond + way * (no_call - beyond)


def make(readings: Sequence[Reading], loop: str) -> Estimate:
    """The sums; a TraplessError where the two halves of the run do not agree."""
    worst = halves(readings, basis(loop))

    def over(sum_of: Callable[[Reading], float]) -> Value:
        return interval([sum_of(reading) for reading in readings])

    subjects = set(readings[0].median)
    kinds = [kind for kind in ("uring.nop", "uring.read") if f"{kind}.n1" in subjects]
    path = over(lambda r: r.ns("path"))
    trap = over(lambda r: bare(r))
    return Estimate(
        trap=over(lambda r: bare(r) - r.ns("function")),
        trap_least=min(
            without_handler(r.least_ns(BEYOND), r.least_ns(NO_CALL)) - r.least_ns("function")
            for r in readings
        ),
        request={
            name: over(lambda r, name=name: r.ns(f"request.{name}.n{REQUEST_N}"))  # type: ignore[misc]
            for name in LOOPS
        },
        mixes={
            mix: tuple(  # type: ignore[misc]
                over(lambda r, name=f"mix.{mix}.{build}.n{REQUEST_N}": r.ns(name))  # type: ignore[misc]
                for build in (loop_by_table(loop), loop_directly(loop))
            )
            for mix in MIXES
        },
        calls=tuple(_call(call, readings) for call in CALLS),
        directory=_directory(readings),
        floors={
            name: over(lambda r, name=name: r.ns(name))  # type: ignore[misc]
            for name in ("function", "vdso", "popfq", "lseek", BEYOND, NO_CALL)
        },
        uring={
            kind: {
                n: over(lambda r, kind=kind, n=n: r.ns(f"{kind}.n{n}"))  # type: ignore[misc]
                for n in URING_BATCHES
            }
            for kind in kinds
        },
        uring_absent=readings[0].absent.get("uring", ""),
        by_int=_by_int(readings) if BY_INT in subjects else None,
        supervisor_path=path,
        supervisor_saved=(max(trap.low / 2 - path.high, 0.0), max(trap.high - path.low, 0.0)),
        clock_ghz=1 / statistics.median(r.least_ns("chain") for r in readings),
        rounds=min(reading.rounds for reading in readings),
        placements=len(readings),
        worst_half=worst,
    )


def _call(call: Call, readings: Sequence[Reading]) -> CallEstimate:
    def saved(reading: Reading, n: int, way: float) -> float:
        return call.crossings * (bare(reading, way) - reading.ns(f"batch.n{n}"))

    def batch(reading: Reading, n: int, way: float) -> float:
        return reading.ns(call.subject) - saved(reading, n, way)

    return CallEstimate(
        call=call,
        plain=interval([reading.ns(call.subject) for reading in readings]),
        least=min(reading.least_ns(call.subject) for reading in readings),
        batch={n: _over_ways(batch, readings, n) for n in BATCHES},
        saved={n: _over_ways(saved, readings, n) for n in BATCHES},
    )


def by_compound_call(ns: Callable[[str], float], lookup: float = LOOKUP) -> float:
    """An entry of a directory by TL_NR_SCANDIR, if its lookup takes that part of statx's."""
    names, statx, refused, fstat = (
        ns(f"listing.{part}.n{DIRECTORY_N}") for part in ("names", "statx", "refused", "fstat")
    )
    cheapest = names + fstat - without_handler(ns(BEYOND), ns(NO_CALL))
    return cheapest + lookup * (names + statx - refused - cheapest)


def _directory(readings: Sequence[Reading]) -> DirectoryEstimate:
    def plain(reading: Reading) -> float:
        return sum(reading.ns(f"listing.{part}.n{DIRECTORY_N}") for part in ("names", "statx"))

    def over_lookups(sum_of: Callable[[Reading, float], float]) -> Value:
        made = [interval([sum_of(r, part) for r in readings]) for part in (0.0, LOOKUP, 1.0)]
        return Value(made[1].ns, min(v.low for v in made), max(v.high for v in made))

    return DirectoryEstimate(
        plain=interval([plain(reading) for reading in readings]),
        compound=over_lookups(lambda r, part: by_compound_call(r.ns, part)),
        saved=over_lookups(lambda r, part: plain(r) - by_compound_call(r.ns, part)),
    )


def _by_int(readings: Sequence[Reading]) -> tuple[Value, dict[int, Value]]:
    """The same call and the same batches, with another trap in place of each `syscall`."""

    def saved(reading: Reading, n: int, way: float) -> float:
        dearer = reading.ns(BY_INT) - reading.ns("getpid")
        return bare(reading, way) + dearer - (reading.ns(f"batch.n{n}") + dearer / n)

    plain = interval([reading.ns(BY_INT) for reading in readings])
    return plain, {n: _over_ways(saved, readings, n) for n in BATCHES}


def _over_ways(
    sum_of: Callable[[Reading, int, float], float], readings: Sequence[Reading], n: int
) -> Value:
    """The value, and an interval over both placements and ways to a handler."""
    ways = [interval([sum_of(r, n, way) for r in readings]) for way in (WAY_LOW, WAY, WAY_HIGH)]
    return Value(ways[1].ns, min(way.low for way in ways), max(way.high for way in ways))


def basis(loop: str) -> list[str]:
    """The subjects that the sums are made of. io_uring and the floors stand beside them."""
    return [
        BEYOND,
        NO_CALL,
        *(call.subject for call in CALLS),
        *(f"batch.n{n}" for n in BATCHES),
        f"request.{loop}.n{REQUEST_N}",
        "path",
    ]


def halves(readings: Sequence[Reading], subjects: Sequence[str]) -> float:
    """How much the two halves of the run differ at most; a TraplessError if that is too much."""
    middle = len(readings) // 2
    first, second = readings[:middle], readings[middle:]
    worst, where = 0.0, ""
    values = (0.0, 0.0)
    for subject in subjects:
        before = statistics.median(reading.ns(subject) for reading in first)
        after = statistics.median(reading.ns(subject) for reading in second)
        differ = abs(before - after) / min(before, after)
        if differ > worst:
            worst, where, values = differ, subject, (before, after)
    if worst > HALVES_DIFFER_MAX:
        raise TraplessError(
            f"no estimate: the two halves of the run differ by {worst:.0%} "
            f"({where}: {values[0]:.1f} and {values[1]:.1f} ns), and more than "
            f"{HALVES_DIFFER_MAX:.0%} says nothing; end other programs, keep the processor's "
            "frequency steady (governor performance), then try again"
        )
    return worst
