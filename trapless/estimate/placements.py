# SPDX-License-Identifier: GPL-2.0-only
"""Takes readings by build/stat/trapless-estimate: one process is one placement in memory, one
reading.

Where code and data lie changes what a loop of a few nanoseconds takes, so each process runs from a
copy of the program in pages of its own, at an address of its own, with a stack that begins
elsewhere. This file owns how processes are started and how their rows are read.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trapless.base import built_programs
from trapless.base.console import Progress, TraplessError

BUILT = "stat/trapless-estimate"
LIMIT_S = 120.0
"""For a process that hangs; each runs a few seconds."""


@dataclass(frozen=True)
class Reading:
    """The measurements of one process: clocks of the time-stamp counter for each call, by
    subject."""

    rounds: int
    clocks_per_ns: float
    median: Mapping[str, float]
    least: Mapping[str, float]
    absent: Mapping[str, str]

    def ns(self, subject: str) -> float:
        """The median over rounds, in nanoseconds a call."""
        return self.median[subject] / self.clocks_per_ns

    def least_ns(self, subject: str) -> float:
        return self.least[subject] / self.clocks_per_ns


def parse(text: str) -> Reading:
    """The rows of one process; a TraplessError where they are not what the program prints."""
    median, least, absent = {}, {}, {}
    head: Mapping[str, float] = {}
    try:
        for line in text.splitlines():
            row = json.loads(line)
            if "subject" in row:
                median[row["subject"]] = float(row["median"])
                least[row["subject"]] = float(row["least"])
            elif "absent" in row:
                absent[row["absent"]] = str(row["why"])
            else:
                head = row
        reading = Reading(int(head["rounds"]), float(head["clocks_per_ns"]), median, least, absent)
    except (KeyError, TypeError, ValueError) as error:
        raise TraplessError(f"{BUILT} printed what is no reading: {text[:200]!r}") from error
    if not reading.median or reading.clocks_per_ns <= 0:
        raise TraplessError(f"{BUILT} printed no subject, or a clock that stands still")
    return reading


def run(
    count: int, seconds: float, loop: str, cpu: int, folder: Path, progress: Progress
) -> list[Reading]:
    """`count` processes one after another, each of about `seconds`. Files are made in a folder of
    their own below `folder`, which is gone afterwards."""
    program = built_programs.find(BUILT)
    readings = []
    progress.step(f"measuring on CPU {cpu}, in {count} processes")
    try:
        made = tempfile.TemporaryDirectory(prefix="trapless-estimate-", dir=folder)
    except OSError as error:
        raise TraplessError(
            f"cannot make files in {folder}: {error.strerror}; choose another folder (--folder)"
        ) from error
    with made as own:
        for number in range(count):
            progress.advance(number, count)
            options = ["--loop", loop, "--cpu", str(cpu), "--seconds", str(seconds)]
            options += ["--folder", own, "--directory", own, "--seed", str(number + 1)]
            readings.append(one(program, options, stack_bytes=number * 272))
    progress.done()
    return readings


def one(program: Path, options: Sequence[str], *, stack_bytes: int = 0) -> Reading:
    """One process, from pages that only it has. `stack_bytes` move its stack."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "PLACEMENT": "x" * stack_bytes}
    with _copy(program) as (path, descriptors):
        try:
            done = subprocess.run(
                [path, *options],
                capture_output=True,
                text=True,
                env=environment,
                pass_fds=descriptors,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TraplessError(
                f"{program} did not end within {LIMIT_S:.0f} s; is the machine stopped or "
                "overloaded? Try again when it is idle"
            ) from error
    if done.returncode:
        raise TraplessError(done.stderr.strip() or f"{program} ended with status {done.returncode}")
    return parse(done.stdout)


@contextmanager
def _copy(program: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """A copy in memory without a name, and its descriptor; the program itself where memory without
    a name may not be executed (vm.memfd_noexec)."""
    try:
        copy = os.memfd_create("trapless-estimate", 0)
    except OSError:
        yield str(program), ()
        return
    try:
        with open(copy, "wb", closefd=False) as stream:
            stream.write(program.read_bytes())
        path = f"/proc/self/fd/{copy}"
        yield (path, (copy,)) if os.access(path, os.X_OK) else (str(program), ())
    finally:
        os.close(copy)
