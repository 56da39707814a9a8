# SPDX-License-Identifier: GPL-2.0-only
"""The long soak: `make soak` runs three programs of the lab for minutes instead of seconds.

Owns the command line, how the time is shared, the log of what was done, who looks into the guest
from outside meanwhile, and the verdict: the programs' own status, a kernel log without a
complaint, and a recording that ends with the guest and can be read. What is done to the guest is
the programs'; a short version of each is a lab test like any other.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tests.lab.runner import suite
from tests.lab.runner.verdict import EXIT_SKIP
from trapless.base.console import ConsoleProgress, Progress, TraplessError
from trapless.vm import lab
from trapless.vm.splats import splats

PROGRAMS = (("probes_soak", 0.25), ("lib_files_end_at_random", 0.2), ("supervisor_soak", 1))
"""The programs, and their shares of the time that is left. The first changes the kernel's code,
which is why it has a VM whose CPUs take turns (suite.TAKE_TURNS). Where it cannot run, its time is
the other's."""

SPARE_S = 1800
"""For what the program still does once its time is up, on a slow kernel."""

RECORD_END_S = 600.0
"""For a recording that hangs: it ends by itself when the guest's memory is gone."""
RECORD = ("--wait", "600", "--interval-us", "1000", "--stacks", "2")
PEEK = (sys.executable, "-m", "trapless", "peek")

LOG = suite.ROOT / "build/soak"


class _Lines:
    """Gives the program's lines to a person as they come, and to a log."""

    def __init__(self, log: TextIO, progress: Progress) -> None:
        self._log, self._progress = log, progress
        self._tail = b""

    def __call__(self, piece: bytes) -> None:
        *lines, self._tail = (self._tail + piece).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace")
            self._progress.note(text)
            self._log.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def soak(kernel: str, program: str, minutes: float, progress: Progress) -> tuple[float, list[str]]:
    """Run one program on one kernel; the minutes that it had, and what was wrong, nothing if all
    held.
    """
    suite.build_programs(progress)
    LOG.mkdir(parents=True, exist_ok=True)
    name = f"{kernel.replace('/', '-')}-{program}"
    with (
        (LOG / f"{name}.log").open("w") as log,
        _observed(LOG / f"{name}-recording", log) as (ram, wrong),
    ):
        result = lab.run(
            _config(kernel, program, minutes, ram, progress),
            [str(suite.BINARY), program],
            sink=_Lines(log, progress),
            progress=progress,
        )
        log.write(f"\nThe kernel's log:\n{result.kernel_log}")
    wrong += splats(result.kernel_log)
    said = result.stderr.decode(errors="replace").strip()
    if result.status == EXIT_SKIP:
        progress.note(f"{program} cannot run here: {said}")
        return 0, wrong
    if result.status != 0:
        wrong.append(f"{program} ended with status {result.status}: {said}")
    return minutes, wrong


def _config(
    kernel: str, program: str, minutes: float, ram: Path, progress: Progress
) -> lab.LabConfig:
    return lab.LabConfig(
        kernel=kernel,
        cpus=2,
        thread_single=program in suite.TAKE_TURNS,
        timeout_s=minutes * 60 + SPARE_S,
        module_parameters=suite.MODULE_PARAMETERS,
        files=suite.module_files(kernel, progress),
        env=(("TL_SOAK_S", str(round(minutes * 60))),),
        modules=suite.MODULES,
        append=suite.APPEND,
        shared_memory=ram,
    )


@contextmanager
def _observed(recording: Path, log: TextIO) -> Iterator[tuple[Path, list[str]]]:
    """A file for the guest's memory, into which `peek record` looks from the guest's start to its
    end; and what was wrong with that, which is known after the guest has ended."""
    wrong: list[str] = []
    shutil.rmtree(recording, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="trapless-soak-", dir="/dev/shm") as folder:
        ram = Path(folder, "ram")
        command = [*PEEK, "record", "--ram", str(ram), *RECORD, str(recording)]
        with subprocess.Popen(command, stdout=log, stderr=log) as observer:
            try:
                yield ram, wrong
                if status := observer.wait(RECORD_END_S):
                    wrong.append(f"peek record ended with status {status}; its words: {log.name}")
            except subprocess.TimeoutExpired:
                wrong.append(f"peek record did not end within {RECORD_END_S:g} s of the guest")
            finally:
                observer.kill()
    report = subprocess.run(
        [*PEEK, "report", str(recording)], capture_output=True, text=True, check=False
    )
    log.write(f"\nWhat was seen from outside:\n{report.stdout}{report.stderr}")
    if report.returncode:
        wrong.append(f"the recording cannot be read: {report.stderr.strip()}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--kernel", default=lab.DEFAULT_KERNEL, help="6.1, 6.12, newest, debug")
    parser.add_argument("--minutes", type=float, default=10, help="how long (default: 10)")
    options = parser.parse_args(arguments)
    left, wrong = options.minutes, []
    with ConsoleProgress() as progress:
        try:
            for program, share in PROGRAMS:
                had, faults = soak(options.kernel, program, share * left, progress)
                left -= had
                wrong += faults
        except TraplessError as error:
            wrong.append(str(error))
    for text in wrong:
        print(text, file=sys.stderr)
    print(
        f"soak of {options.minutes:g} minutes on {options.kernel}: "
        f"{'failed' if wrong else 'held, the kernel log is clean'}; {LOG} has what was done"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
