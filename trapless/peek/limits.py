# SPDX-License-Identifier: GPL-2.0-only
"""Names every bound that holds while the memory of a guest is read: time, memory and steps.

A guest is an attacker, so each walk, each table and each text has a bound, and opening as a whole
has one. Owns their values and the error that says which was met; whoever reads spends from the
budget of the moment. Bounds of what our own programs write (rows, recordings) are theirs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from trapless.peek.errors import PeekError

# ---- Texts and tables: above those of any real kernel; what exceeds them is refused or cut. ------

TEXT_CHARS_MAX = 512
"""The longest text: symbols of Rust and C++ may have some hundred characters."""
STRING_BYTES_MAX = 4096

SEGMENTS_MAX = 4096
"""Memory ranges of a machine behind a debugger's stub: it has a handful."""
CORE_SEGMENTS_MAX = 1 << 20
"""Segments of an ELF core: one with paging has one for each piece of virtual memory."""
REGIONS_MAX = 1 << 16
"""Ranges of physical memory in one image, without overlaps: few images have more than ten."""
CORE_NOTES_BYTES_MAX = 8 << 20
"""The notes of a dump: they have less than a kilobyte for each CPU."""
UNPACKED_BYTES_MAX = 1 << 46
"""The size of an unpacked image, with its holes."""
UNPACKER_MEMORY_BYTES = 256 << 20
"""The memory that unpacking may take beside its own code."""
UNPACK_S, UNPACK_BYTES_S = 60.0, 4 << 20
"""Seconds of processor time for unpacking any image, and bytes of it for each second more."""

NOTE_BYTES_MAX = 3 * 4096
DIGITS_MAX = 32
"""The most digits of a number in a note: none has more than 20."""
NOTES_SEEN_MAX = 100_000
NOTES_MAX = 4096
"""Notes of different texts in all, and those whose page tables fit: a memory has one a boot."""
CLOCK_S = 5.0
"""How long the clocks of several kernels are watched for the one that moves."""
FAILURES_SHOWN = 5
"""Reasons that are kept: thousands of notes may each have one."""
ELF_NOTES_BYTES_MAX = 16 * 4096
"""The ELF notes in a kernel's image, among which is its build-id."""

IMAGE_BYTES_MAX = 64 << 20
"""The most of a kernel's image that is searched for tables: stock ones end at 50 MB."""
SYMBOL_TABLES_MAX = 32
"""Tables of symbols that the notes of a memory name: it has one a kernel and layout."""
SYMBOLS_MAX = 1_000_000
SYMBOL_CHARS_MAX = 512
"""The kernel's KSYM_NAME_LEN, with the letter before the name."""
SYMBOL_BYTES_MEAN_MAX = 64
"""Compressed, on average: stock kernels have 12 to 16."""
TOKEN_BYTES_MAX = 64
NAMES_CHARS_MAX = 64 << 20
"""All names of symbols together: stock kernels have 4 MB."""

TYPES_BYTES_MAX = 64 << 20
TYPES_MAX = 1_000_000
"""BTF: stock kernels have 5 to 10 MB, and under 200,000 types."""
TYPE_DEPTH_MAX = 64
"""The longest chain of typedefs, qualifiers or anonymous members; a longer one is a circle."""

CPUS_MAX = 8192

MODULES_MAX = 1024
MODULE_SECTIONS_MAX = 16
MODULE_SYMBOLS_MAX = 100_000
MODULE_SYMBOLS_TOTAL_MAX = 200_000
"""Symbols of all modules together: a real kernel's have some ten thousand."""
MODULE_NAME_BYTES = 256

THREADS_MAX = 65_536

TABLES_READ_MAX = 1 << 15
RUNS_MAX = 1 << 18
"""Page tables that are read to find a machine's memory behind a debugger's stub, and runs of pages
that follow one another in them."""

UNWIND_ROWS_MAX = 2_000_000
"""Rows in the unwind tables of a kernel or a module: a stock kernel has some 250,000."""
UNWIND_BYTES_TOTAL_MAX = 64 << 20
"""All tables that are kept, together: 3 MB for a stock kernel with its modules."""
STACK_BYTES_MAX = 1 << 16
"""The kernel stack of one thread: x86-64 has 16 KiB, twice that with KASAN."""
FRAMES_MAX = 128
"""Frames on one stack: the deepest stacks of a stock kernel have some 60."""
STACKS_MAX = 8192
"""Different stacks in one walk of all threads."""
STACKS_KEPT_MAX = 1 << 16
"""Different stacks that a recording keeps, with the threads that have them."""
STACK_PLACES_MAX = 1 << 20
"""Functions on all stacks that a recording keeps: 16 on each of the most stacks."""

USER_FRAMES_MAX = 64
"""Frames on one stack of user mode: deeper recursion is cut."""
USER_FRAME_BYTES_MAX = 1 << 20
"""The largest distance between two frame pointers: a pointer that leads further is no frame."""
USER_AREAS_KEPT_MAX = 256
"""Mappings of one process that are kept for a walk: those that its stacks are in."""
TREE_DEPTH_MAX = 16
"""Levels of a tree of mappings or of a file's pages: fewer levels use up the 64 bits of an
address."""
ELF_SEGMENTS_MAX, ELF_SECTIONS_MAX, ELF_TABLES_MAX = 64, 1024, 4
"""Parts of a program that are looked at, and its symbol tables: compilers make two."""
USER_SYMBOLS_MAX, USER_SYMBOLS_TOTAL_MAX = 100_000, 200_000
"""Functions of one file, and of all files that are kept."""
USER_STRINGS_BYTES_MAX = 8 << 20
USER_NAME_BYTES_MAX = 256
"""The names of all functions in one file, and one name: those of C++ may be longer, and are cut."""
USER_FILES_MAX = 1024
USER_FILE_NAME_BYTES_MAX = 256
"""The name of a file: Linux allows 255 bytes."""
USER_NAMES_MAX = 1 << 14
"""Names of user mode in one walk of all threads: beyond that, a stack has no names."""

SITES_MAX = 1 << 16
"""Places in the kernel's code that the module's probes have patched."""
NAMES_MAX = 1 << 16
"""Names that a recording keeps: samples may hold any address, but no kernel has this many
places."""
SUMS_MAX = 1 << 16
"""Processes by pid and name, and routines, whose samples are added up: each sample of a hostile
guest may have new ones. Beyond this number, those with the fewest samples become one."""
PLACES_MAX = 64
RING_BYTES_MAX = 4 << 20
TRACE_KEPT_MAX = 1 << 18
"""Threads, and names of code, that a trace remembers: more than four times what one walk finds."""
TRACKS_MAX = 1 << 18
"""Tracks of a trace for viewers. Each thread has one; beyond this number, all share one."""
SLICES_OPEN_MAX = 64
"""Nested interrupts on a CPU: a real CPU has a handful."""

LINKS_MAX = 1 << 16
"""Links of one list of the kernel: of waiters, of work, of disks, of file systems."""
LOG_RECORDS_BITS, LOG_BYTES_BITS, LOG_RECORD_BYTES_MAX = 20, 25, 1024
"""The kernel's log: stock kernels have 2^12 records of 88 bytes, and 2^17 bytes of text."""
LOG_LINES_MAX, LOG_TEXT_BYTES_MAX = 1 << 17, 8 << 20
"""The newest lines of a log, and bytes of its text, that are decoded: as JSON, with five characters
for each byte, they are no longer than an answer."""
DISK_REQUESTS_MAX = 1 << 16
"""Requests of one disk: its driver allows some hundred in each queue."""
TABLE_PARTS_MAX, TABLE_DEPTH_MAX = 128, 80
"""Parts of a table of symbols for other tools, and the depth of a type's description: stock kernels
have a dozen of the first."""
VERDICTS_MAX, EVIDENCE_MAX, NAMED_MAX = 100, 40, 4
"""Verdicts, the lines of evidence of each, and the threads that one sentence names."""

# ---- Recordings. The memory that reading one may take is in sampling/recording.py. ---------------

GROUPS_MAX = 64
"""Groups of fields, and threads, in one row: the sampler has no more."""
BOOTS_MAX = 24
"""Boots that are shown of one recording."""
DIFFERENCES_MAX = 20
"""Sentences about the kernel in a recording: our own recordings have one."""

# ---- The process that resolves names: the kernel of this machine holds these. --------------------

RESOLVER_MEMORY_BYTES = 500 << 20
"""The address space of the process that reads a guest's tables and lists."""
ANSWER_BYTES_MAX = 48 << 20
"""Its longest answer: all symbols of a kernel, 10 MB for a stock one."""
OPEN_S, SEARCH_BYTES_S = 9.0, 1 << 30
ANSWER_S = 6.0
"""Seconds of processor time for opening, without the search of all memory, and for an answer."""
BUSY_FACTOR = 10
"""The factor by which an answer may take longer by the clock: a busy machine is no attack."""
GRACE_S = 1.0
"""Seconds between the request to end and the kill of a process."""
STORE_ASKS_MAX = 2 * SYMBOL_TABLES_MAX
"""How often it may ask for kept symbols, and give some to keep, while a question waits: once each
for a table. So the bound of tables, which also holds without the sandbox, is reached first."""
READS_MAX = 1_000_000
"""How often it may ask for memory for one answer, where it cannot read memory by itself."""
MESSAGE_LINES_MAX = 20


class LimitError(PeekError):
    """A guest has more of something, or something larger, than a bound allows."""


class Bound(NamedTuple):
    """The bound of one kind of work. Steps are reads of memory and rounds of loops."""

    work: str
    seconds: float  # of processor time: a busy machine is no attack
    steps: int
    data_bytes: int


OPENING = Bound("reading the kernel's types, and comparing what it says", 4.0, 4_000_000, 512 << 20)
NOTES = Bound("reading the symbols of the kernels that were found", 5.0, 2_000_000, 256 << 20)
THREADS = Bound("the walk of the lists of threads", 4.0, 1_500_000, 64 << 20)
STACKS = Bound("the walk of the threads' stacks", 4.0, 4_000_000, 1 << 30)
USER_STACKS = Bound("the walk of the stacks in user mode", 2.0, 2_000_000, 256 << 20)
USER_FILE = Bound("reading the functions of a program", 0.5, 500_000, 64 << 20)
MODULES = Bound("the walk of the list of modules", 4.0, 1_500_000, 64 << 20)
LOG = Bound("reading the kernel's log", 4.0, 1_000_000, 256 << 20)
DIAGNOSIS = Bound("the search for what hangs", 5.0, 4_000_000, 1 << 30)
TABLE = Bound("describing the kernel's types and symbols", 5.0, 4_000_000, 16 << 20)
TYPES = Bound("the search for a member of a type", 2.0, 2_000_000, 16 << 20)


LOOK, LOOK_BYTES = 32, 1 << 16
"""In a row of this many steps of at most this many bytes each, only one step reads the clock by a
system call."""


class Budget:
    """The rest of a bound. One thread."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._end = time.thread_time() + bound.seconds
        self._steps = self._bytes = self._spent = 0

    def spend(self, steps: int, data_bytes: int) -> None:
        """Spend some of it; LimitError says which bound was met."""
        self._steps += steps
        self._bytes += data_bytes
        if self._steps > self._bound.steps:
            self._refuse(f"{self._bound.steps:,} steps")
        if self._bytes > self._bound.data_bytes:
            self._refuse(f"{self._bound.data_bytes >> 20:,} MiB of memory read")
        self._spent += 1
        if self._spent % LOOK and steps == 1 and data_bytes <= LOOK_BYTES:
            return
        if time.thread_time() > self._end:
            self._refuse(f"{self._bound.seconds:g} s of processor time")

    def _refuse(self, limit: str) -> None:
        raise LimitError(
            f"{self._bound.work} took more than {limit}: the target's kernel is damaged, or made "
            "up to take long"
        )


_now: ContextVar[Budget | None] = ContextVar("budget", default=None)


def spend(steps: int = 1, data_bytes: int = 0) -> None:
    """Spend from the budget of the moment, where there is one."""
    budget = _now.get()
    if budget is not None:
        budget.spend(steps, data_bytes)


@contextmanager
def within(budget: Budget) -> Iterator[None]:
    """Do the work inside within a budget, which takes the place of an outer one meanwhile."""
    token = _now.set(budget)
    try:
        yield
    finally:
        _now.reset(token)
