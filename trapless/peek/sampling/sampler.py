# SPDX-License-Identifier: GPL-2.0-only
"""Runs the sampler: starts it with a plan, reads its rows, ends it.

Owns the process and the path of its program. rows.py decodes the rows. When this process dies, the
sampler's output has no reader any more, and the sampler ends within a tenth of a second.
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
from trapless.peek.kernel.memory import FileMemory
from trapless.peek.sampling.plan import Plan
from trapless.peek.sampling.rows import End, Head, Rows, Stream

READ_BYTES = 1 << 20
STOP_S = 120.0
"""The seconds that the sampler may take to write its last rows."""

STATUS_ENDED = 3
"""The exit status when the target or its memory went away: the rows until then are whole."""


def program() -> Path:
    """The path of the sampler, as make builds it."""
    return programs.find("sampler/trapless-sampler")


def own_cpu() -> int:
    """The processor for the sampler: the last one that this process may use."""
    return max(os.sched_getaffinity(0))


def ram(path: Path, hole: int = 0) -> str:
    """The sampler's argument for memory in a file. RAM below 4 GiB ends at `hole`; 0: no hole."""
    return f"ram:{path},hole={hole:#x}"


def regions(memory: FileMemory) -> str:
    """The sampler's argument for memory in files that it inherits, in their order."""
    files = memory.descriptors()
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
            source = regions(source)
        self._argv = [str(program()), "--source", source, "--plan", "-"]
        self._stream = Stream()
        self._process: subprocess.Popen[bytes] | None = None

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
        """The description of the rows; PeekError before batches() has given any."""
        if self._stream.head is None:
            raise PeekError("the sampler has not begun")
        return self._stream.head

    @property
    def end(self) -> End | None:
        """The counts of the run; None before it has ended, or if it was killed."""
        return self._stream.end

    def stop(self) -> None:
        """Ask the sampler to end; batches() then gives the last rows."""
        self._running.terminate()

    def batches(self) -> Iterator[Rows]:
        """The rows as they arrive, at least ten times a second, until sampling ends.

        PeekError when the sampler could not begin, or failed. The end of the target is not an
        error: `end` says it.
        """
        output = self._running.stdout
        assert output is not None
        while piece := os.read(output.fileno(), READ_BYTES):
            yield from self._stream.feed(piece)
        errors = self._running.stderr
        message = errors.read().decode(errors="replace").strip() if errors is not None else ""
        status = self._running.wait()
        if status not in (0, STATUS_ENDED) and self._stream.end is None:
            raise PeekError(message or f"the sampler ended with status {status}")


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
