# SPDX-License-Identifier: GPL-2.0-only
"""Runs the sampler: starts it with a plan, reads its rows, ends it.

Owns the process and the path of its program. sample_rows.py decodes the rows. When this process
dies, the sampler's output has no reader any more, and the sampler ends within a tenth of a second.
On another machine, the agent that reads its memory is the sampler as well. Where memory is behind a
debugger's stub, no such program can read it, and this process samples slowly.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trapless.base import built_programs
from trapless.base.tools import interrupts_deferred, kill
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import visible
from trapless.peek.kernel.memories.agent_memory import AgentMemory, Kind
from trapless.peek.kernel.memories.rdma_memory import RdmaMemory
from trapless.peek.kernel.memories.stub_memory import StubMemory
from trapless.peek.kernel.memory import FileMemory, Memory
from trapless.peek.sampling.sample_rows import (
    FIXED,
    End,
    Ending,
    Flag,
    Head,
    Rows,
    Stream,
    parse_head,
)
from trapless.peek.sampling.sampling_plan import Field, Plan

READ_BYTES = 1 << 20
STOP_S = 120.0
"""The seconds that the sampler may take to write its last rows."""

STOPPED_INTERVAL_NS_MIN = 50_000_000
"""Each sample through a stub stops the machine for some milliseconds."""

AGENT_FILE = 3
"""The agent's descriptor of the memory."""
WAITING_BYTES_MAX = 64 << 20
MESSAGE_COST_BYTES = 256
"""What a message takes beside its data, while it waits."""
ROWS_SLACK = 1000
"""The rows that an agent may send too early, by its clock."""

STATUS_ENDED = 3
"""The exit status when the target or its memory went away: the rows until then are whole."""


def program() -> Path:
    """The path of the sampler, as make builds it."""
    return built_programs.find("sampler/trapless-sampler")


def own_cpu() -> int:
    """The processor for the sampler: the last one that this process may use."""
    return max(os.sched_getaffinity(0))


def cpu_for(memory: Memory) -> int:
    """The same where a memory is sampled, which may be another machine."""
    return memory.agent.last_cpu if isinstance(memory, AgentMemory) else own_cpu()


def ram(path: Path, hole: int = 0) -> str:
    """The sampler's argument for memory in a file. RAM below 4 GiB ends at `hole`; 0: no hole."""
    return f"ram:{path},hole={hole:#x}"


def regions(memory: FileMemory, files: Sequence[int]) -> str:
    """The sampler's argument for memory in files, by the descriptors that it has of them."""
    return "regions:" + ",".join(
        f"{one.start:#x}:{one.length:#x}:{files[one.file]}:{one.offset:#x}"
        for one in memory.regions()
    )


def process(pid: int) -> str:
    """The sampler's argument for the memory of a process of this machine."""
    return f"process:{pid}"


class Sampler:
    """A running sampler. Use it as a context manager, and iterate over batches() inside.

    `source` is an argument as ram() or process() give it, or a memory that is open: the sampler
    inherits its descriptors. One thread, but a signal handler may call stop().
    """

    def __init__(self, source: str | FileMemory, plan: Plan) -> None:
        self._plan = plan.text()
        self._inherited: tuple[int, ...] = ()
        if isinstance(source, FileMemory):
            self._inherited = source.descriptors()
            source = regions(source, self._inherited)
        self._argv = [str(program()), "--source", source, "--plan", "-"]
        self._stream = Stream()
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = False
        self.loss = ""
        """Why a connection has ended, where its end has ended sampling."""

    def __enter__(self) -> Sampler:
        self._process = subprocess.Popen(
            self._argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=self._inherited,
            process_group=0,  # Ctrl-C is the caller's to handle
        )
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(self._plan.encode())
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended with a message, which batches() raises
        self._process.stdin = None
        return self

    def __exit__(self, *_: object) -> None:
        process = self._running
        self.stop()
        try:
            # Its output is drained, so that nothing keeps it from ending.
            process.communicate(timeout=STOP_S)
        except (subprocess.TimeoutExpired, ValueError):
            kill(process)

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("a Sampler is a context manager; it has not been entered")
        return self._process

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def head(self) -> Head:
        """The description of the rows; PeekError before batches() has given any."""
        if self._stream.head is None:
            raise PeekError("the sampler has not begun")
        return self._stream.head

    @property
    def end(self) -> End | None:
        """The counts of the run; None before it has ended, or if it was killed."""
        return self._stream.end

    def stop(self) -> None:
        """Ask the sampler to end; batches() then gives the last rows.

        Asked once only, however often this is called: a second signal would end it without them.
        """
        if not self._asked:
            self._asked = True
            with interrupts_deferred():  # it polls: see tools.has_ended()
                self._running.terminate()

    @property
    def output(self) -> int:
        """The descriptor that can be read when there is something for arrived()."""
        output = self._running.stdout
        assert output is not None
        return output.fileno()

    def arrived(self) -> Sequence[Rows] | None:
        """The rows of the next piece of output, which is waited for; None after the last one.

        BlockingIOError where there is no piece yet, and `output` was made not to wait.
        """
        piece = os.read(self.output, READ_BYTES)
        return self._stream.feed(piece) if piece else None

    def kill(self) -> None:
        """End a sampler that does not end by itself; arrived() then gives its last rows."""
        with interrupts_deferred():
            self._running.kill()

    def batches(self) -> Iterator[Rows]:
        """The rows as they arrive, at least ten times a second, until sampling ends.

        PeekError when the sampler could not begin, or failed. The end of the target is not an
        error: `end` says it.
        """
        while (rows := self.arrived()) is not None:
            yield from rows
        self.check_ending()

    def check_ending(self) -> None:
        """After the last rows: PeekError when the sampler could not begin, or failed."""
        errors = self._running.stderr
        message = errors.read().decode(errors="replace").strip() if errors is not None else ""
        status = self._running.wait()
        if status == STATUS_ENDED and self._argv[2].startswith("rdma:"):
            reason = message.removeprefix("trapless-sampler: ").partition("; ")[0]
            self.loss = f"the connection has ended: {reason}"
        if status not in (0, STATUS_ENDED) and self._stream.end is None:
            raise PeekError(message or f"the sampler ended with status {status}")


def _head(plan: Plan) -> Head:
    """The head of rows by a plan, with this moment's times."""
    sizes = [np.dtype(kind).itemsize for _, kind in FIXED] + [8 * len(plan.threads)]
    sizes += [field.bytes for group in plan.groups for field in group.fields]
    text = plan.text()
    text += f"# monotonic-ns {time.monotonic_ns()}\n# realtime-ns {time.time_ns()}\n"
    return parse_head(text, -(-sum(sizes) // 8) * 8)


class AgentSampler:
    """Samples another machine through its agent, as Sampler does; one at a time.

    When the connection ends, so does sampling, and the rows until then are whole.
    """

    def __init__(self, memory: AgentMemory, plan: Plan) -> None:
        self._agent, self._stream, self._dtype = memory.agent, Stream(), _head(plan).dtype
        self._text = f"{regions(memory, [AGENT_FILE])}\n{plan.text()}"
        self._messages: queue.SimpleQueue[tuple[Kind | None, bytes]] = queue.SimpleQueue()
        self._waiting, self._lock = 0, threading.Lock()  # bytes that batches() has not taken
        self._over, self._asked_s, self._begun_s = False, 0.0, time.monotonic()
        self._plan = plan
        self._end: End | None = None
        self.loss = ""
        """Why the connection has ended, where it has."""

    def __enter__(self) -> AgentSampler:
        self._agent.sample(self, self._text)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        with contextlib.suppress(PeekError):
            for _rows in self.batches():
                pass

    def heard(self, kind: Kind, data: bytes) -> None:
        with self._lock:
            self._waiting += len(data) + MESSAGE_COST_BYTES
        if self._waiting > WAITING_BYTES_MAX:
            raise PeekError("it sends more rows than can be taken")
        self._messages.put((kind, data))

    def lost(self, reason: str) -> None:
        self._messages.put((None, reason.encode()))

    @property
    def head(self) -> Head:
        """The description of the rows; PeekError before batches() has given any."""
        if self._stream.head is None:
            raise PeekError("the sampler has not begun")
        return self._stream.head

    @property
    def end(self) -> End | None:
        """The counts of the run; None before it has ended."""
        return self._stream.end or self._end

    def stop(self) -> None:
        """Ask it to end; batches() then gives the last rows."""
        if not self._asked_s:
            self._asked_s = time.monotonic()
            self._agent.stop()

    def _message(self) -> tuple[Kind | None, bytes]:
        while True:
            now_s = time.monotonic()
            if self._asked_s and now_s - self._asked_s > STOP_S:
                raise PeekError(f"the agent on {self._agent.host} does not end")
            if self._plan.duration_ns and now_s - self._begun_s > self._plan.duration_ns / 1e9:
                self.stop()  # it should end by itself
            with contextlib.suppress(queue.Empty):
                kind, data = self._messages.get(timeout=1)
                with self._lock:
                    self._waiting -= len(data) + MESSAGE_COST_BYTES
                return kind, data

    def _check(self, rows: int) -> None:
        """PeekError where an agent has sent more rows than there were intervals."""
        passed_s = time.monotonic() - self._begun_s
        if rows > 1.1 * passed_s * 1e9 / self._plan.interval_ns + ROWS_SLACK:
            raise PeekError(f"the agent on {self._agent.host} sends more rows than were asked for")

    def batches(self) -> Iterator[Rows]:
        """The rows as they arrive, until sampling ends; PeekError when it could not begin, or when
        the agent does what it was not asked for: that ends the connection."""
        try:
            yield from self._batches()
        except PeekError:
            self._over = True
            self._agent.close()
            raise

    def _batches(self) -> Iterator[Rows]:
        counts = Counter[str]()
        first_slot = last_slot = 0
        while not self._over:
            kind, data = self._message()
            if kind is Kind.ROWS:
                for rows in self._stream.feed(data):
                    if rows.dtype != self._dtype:
                        raise PeekError(f"{self._agent.host} sends rows that were not asked for")
                    first_slot = first_slot if counts["rows"] else int(rows["slot"][0])
                    last_slot = int(rows["slot"][-1])
                    counts["rows"] += len(rows)
                    self._check(counts["rows"])
                    for flag in Flag:
                        counts[str(flag.name)] += int(np.count_nonzero(rows["flags"] & flag))
                    yield rows
                continue
            self._over = True
            text = visible((data if kind is None else data[4:]).decode(errors="replace"))
            if self._stream.head is None or (kind and self._stream.end is None):
                raise PeekError(text or "the agent's sampler was killed")
            if self._stream.end is not None:
                return
            self.loss = text
            slots = last_slot - first_slot + 1
            rows_lost = max(slots - counts["rows"], 0)
            late, torn, frozen, absent = (counts[str(flag.name)] for flag in Flag)
            self._end = End(
                *(Ending.SOURCE, counts["rows"], slots, rows_lost),
                *(late, torn, frozen, absent),
                retries=0,
                unwritten=0,
            )


class StoppedSampler:
    """Samples memory behind a debugger's stub, as Sampler does, at intervals of 50 ms or more.

    The machine stands still while a row is read, so all of a row is of one moment.
    """

    def __init__(self, memory: StubMemory, plan: Plan) -> None:
        interval_ns = max(plan.interval_ns, STOPPED_INTERVAL_NS_MIN)
        self._memory, self._plan = memory, replace(plan, interval_ns=interval_ns)
        self.head = _head(self._plan)
        self.end: End | None = None
        self._asked, self.loss = False, ""

    def __enter__(self) -> StoppedSampler:
        return self

    def __exit__(self, *_: object) -> None:
        self._asked = True

    def stop(self) -> None:
        """Ask it to end; batches() then gives the last rows."""
        self._asked = True

    def batches(self) -> Iterator[Rows]:
        """The rows as they are read, until sampling ends."""
        began, interval_ns = time.monotonic_ns(), self._plan.interval_ns
        slot = rows = late = absent = 0
        ending = Ending.SIGNAL
        while not self._asked:
            due = began + slot * interval_ns
            if self._plan.duration_ns and due - began >= self._plan.duration_ns:
                ending = Ending.DURATION
                break
            time.sleep(max(due - time.monotonic_ns(), 0) / 1e9)
            try:
                row = self._row(slot, due)
            except PeekError:
                ending = Ending.TARGET
                break
            rows += 1
            late += int(row["flags"][0] & Flag.LATE != 0)
            absent += int(row["flags"][0] & Flag.ABSENT != 0)
            yield row
            # Deadlines that have passed meanwhile are lost, as the sampler has it.
            slot = max(slot + 1, (time.monotonic_ns() - began) // interval_ns)
        self.end = End(ending, rows, slot, max(slot - rows, 0), late, 0, 0, absent, 0, 0)

    def _row(self, slot: int, due_ns: int) -> Rows:
        row = np.zeros(1, self.head.dtype)
        with self._memory.stopped():
            now = time.monotonic_ns()
            for number, group in enumerate(self._plan.groups):
                for field in group.fields:
                    data = self._field(field)
                    column = f"{group.name}.{field.name}"
                    if data is None:
                        row["absent"] |= np.uint64(1 << number)
                        row["flags"] |= np.uint32(Flag.ABSENT)
                    else:
                        row[column] = np.frombuffer(data, row.dtype[column])
        lag_ns = max(now - due_ns, 0)
        row["slot"], row["t_ns"], row["lag_ns"] = slot, now, min(lag_ns, (1 << 32) - 1)
        row["cost_ns"] = min(time.monotonic_ns() - now, (1 << 32) - 1)
        if lag_ns > self._plan.interval_ns // 2:
            row["flags"] |= np.uint32(Flag.LATE)
        return row

    def _field(self, field: Field) -> bytes | None:
        """One field, at an address or at the end of a chain of pointers; None where that leads out
        of the kernel's data."""
        place = field.address
        for offset in field.follow:
            pointer = int.from_bytes(self._memory.read(place, 8), "little") + offset
            for base in self._plan.bases:
                if base.virtual <= pointer < base.virtual + base.length:
                    place = pointer - base.virtual + base.physical
                    break
            else:
                return None
        return self._memory.read(place, field.bytes)


AnySampler = Sampler | AgentSampler | StoppedSampler


def started(memory: FileMemory, plan: Plan) -> AnySampler:
    """The sampler for a memory and a plan; use it as a context manager."""
    if isinstance(memory, AgentMemory):
        return AgentSampler(memory, plan)
    if isinstance(memory, StubMemory):
        return StoppedSampler(memory, plan)
    if isinstance(memory, RdmaMemory):  # by a connection of its own
        return Sampler(memory.source, plan)
    return Sampler(memory, plan)


def intervals(
    source: str, address: int, sizes: Sequence[int], reads: int, cpu: int | None = None
) -> list[dict[str, Any]]:
    """How closely reads of each size in bytes can follow one another: a row for each size."""
    argv = [str(program()), "--source", source, "--address", hex(address)]
    argv += ["--interval-test", ",".join(map(str, sizes)), "--reads", str(reads)]
    if cpu is not None:
        argv += ["--cpu", str(cpu)]
    done = subprocess.run(argv, capture_output=True, check=False)
    if done.returncode:
        raise PeekError(done.stderr.decode(errors="replace").strip() or "the sampler failed")
    return [json.loads(line) for line in done.stdout.splitlines()]
