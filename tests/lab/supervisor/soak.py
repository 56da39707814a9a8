# SPDX-License-Identifier: GPL-2.0-only
"""The long soak: `make soak` runs supervisor_soak.c for minutes instead of seconds.

Owns the command line, and the verdict: the program's own status and a kernel log without a
complaint. What is done to the guest is the program's; a short version of it is a lab test like any
other.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.lab.runner import suite
from trapless.base.console import ConsoleProgress, Progress, TraplessError
from trapless.vm import lab
from trapless.vm.splats import splats

SPARE_S = 1800
"""For what the program still does once its time is up, on a slow kernel."""


class _Lines:
    """Gives the program's lines to a person as they come."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tail = b""

    def __call__(self, piece: bytes) -> None:
        *lines, self._tail = (self._tail + piece).split(b"\n")
        for line in lines:
            self._progress.note(line.decode(errors="replace"))


def soak(kernel: str, minutes: float, progress: Progress) -> list[str]:
    """Run the soak on one kernel; what was wrong, nothing if all held."""
    suite.build_programs(progress)
    config = lab.LabConfig(
        kernel=kernel,
        cpus=2,
        timeout_s=minutes * 60 + SPARE_S,
        module_parameters=suite.MODULE_PARAMETERS,
        files=suite.module_files(kernel, progress),
        env=(("TL_SOAK_S", str(round(minutes * 60))),),
        modules=suite.MODULES,
        append=suite.APPEND,
    )
    argv = [str(suite.BINARY), "supervisor_soak"]
    result = lab.run(config, argv, sink=_Lines(progress), progress=progress)
    wrong = splats(result.kernel_log)
    if result.status != 0:
        said = result.stderr.decode(errors="replace").strip()
        wrong.append(f"the soak ended with status {result.status}: {said}")
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--kernel", default=lab.DEFAULT_KERNEL, help="6.1, 6.12, newest, debug")
    parser.add_argument("--minutes", type=float, default=10, help="how long (default: 10)")
    options = parser.parse_args(arguments)
    with ConsoleProgress() as progress:
        try:
            wrong = soak(options.kernel, options.minutes, progress)
        except TraplessError as error:
            wrong = [str(error)]
    for text in wrong:
        print(text, file=sys.stderr)
    print(
        f"soak of {options.minutes:g} minutes on {options.kernel}: "
        f"{'failed' if wrong else 'held, the kernel log is clean'}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
