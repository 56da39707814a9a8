# SPDX-License-Identifier: GPL-2.0-only
"""Runs the sampler: starts it with a plan, takes its rows as they come, ends it.

Owns the process and where its program is. The rows' form is rows.py's; what is read where is the
plan's. When this process dies, whatever kills it, the sampler's output has no reader any more, and
it ends within a tenth of a second.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from trapless.base import programs
from trapless.peek.errors import PeekError
from trapless.peek.sampling.plan import Plan
from trapless.peek.sampling.rows import End, Head, Rows, Stream

READ_BYTES = 1 << 20
STOP_S = 120.0
"""How long the sampler may take to write what it has, seconds."""

STATUS_ENDED = 3
"""The target or its memory went away: what was recorded until then is whole."""


def program() -> Path:
    """The sampler, as make builds it."""
    return programs.find("sampler/trapless-sampler")


def own_cpu() -> int:
    """The processor that an observer has to itself as far as it can: the last it may use."""
    return max(os.sched_getaffinity(0))


def ram(path: Path, hole: int = 0) -> str:
    """The sampler's word for memory in a file; `hole`: where RAM below 4 GiB ends, 0 for none."""
    return f"ram:{path},hole={hole:#x}"


def process(pid: int) -> str:
    """The sampler's word for the memory of a process of this machine."""
    return f"process:{pid}"


class Sampler:
    """A running sampler. Use as a context manager; iterate over batches() inside it."""

    def __init__(self, source: str, plan: Plan) -> None:
        self._plan = plan.text()
        self._argv = [str(program()), "--source", source, "--plan", "-"]
        self._stream = Stream()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Sampler:
        self._process = subprocess.Popen(
            self._argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,  # Ctrl-C is the caller's to handle
        )
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(self._plan.encode())
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # it has complained, and ended; batches() says so
        self._process.stdin = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._running
        process.terminate()
        try:
            # Its output is drained, so that nothing keeps it from ending.
            process.communicate(timeout=STOP_S)
        except (subprocess.TimeoutExpired, ValueError):
            process.kill()
            process.wait()

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
        """What the rows hold; there once batches() has given something, or ended."""
        if self._stream.head is None:
            raise PeekError("the sampler has not begun")
        return self._stream.head

    @property
    def end(self) -> End | None:
        """The counts of the run, when it has ended by itself; None if it was killed."""
        return self._stream.end

    def stop(self) -> None:
        """Ask the sampler to end; batches() then gives what is left."""
        self._running.terminate()

    def batches(self) -> Iterator[Rows]:
        """Rows as they come, at least ten times a second, until sampling ends.

        PeekError when the sampler could not begin, or failed. The end of the target is no error:
        see `end`.
        """
        output = self._running.stdout
        assert output is not None
        while piece := os.read(output.fileno(), READ_BYTES):
            yield from self._stream.feed(piece)
        errors = self._running.stderr
        said = errors.read().decode(errors="replace").strip() if errors is not None else ""
        status = self._running.wait()
        if status not in (0, STATUS_ENDED) and self._stream.end is None:
            raise PeekError(said or f"the sampler ended with status {status}")


def intervals(
    source: str, address: int, sizes: Sequence[int], reads: int, cpu: int | None = None
) -> list[dict[str, Any]]:
    """How closely `reads` of each size can follow one another: a row of figures for each size."""
    argv = [str(program()), "--source", source, "--address", hex(address)]
    argv += ["--interval-test", ",".join(map(str, sizes)), "--reads", str(reads)]
    if cpu is not None:
        argv += ["--cpu", str(cpu)]
    done = subprocess.run(argv, capture_output=True, check=False)
    if done.returncode:
        raise PeekError(done.stderr.decode(errors="replace").strip() or "the sampler failed")
    return [json.loads(line) for line in done.stdout.splitlines()]
