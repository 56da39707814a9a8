# SPDX-License-Identifier: GPL-2.0-only
"""What the guest of test_lab_here.py runs: commands of trapless, each in a process of its own.

An emulated guest takes a minute to start Python with the command, most of it to read files over the
share. So these processes are forks of one that has read everything. This file owns their order, and
what it says of each on standard error; the archive of the results goes to standard output.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from trapless.cli import main
from trapless.experiments import archive, evaluate  # noqa: F401  read before the first fork
from trapless.experiments.here import own_machine
from trapless.experiments.here import own_run as here  # noqa: F401

OURS = {"trapless", "brd", "ext4", "null_blk", "hierarchy", "array"}
"""Modules that experiments load."""
UNASKED, RESULTS = Path("/run/unasked"), Path("/run/results")
LOADED_S = 300.0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def loaded() -> set[str]:
    lines = Path("/proc/modules").read_text().splitlines()
    return OURS & {line.split()[0] for line in lines}


def roots() -> list[str]:
    return [str(path) for path in Path("/tmp").glob("trapless-here-*")]


def left(after: str) -> None:
    """Say what is still loaded, or mounted, or lies about."""
    mounts = Path("/proc/mounts").read_text().splitlines()
    mounted = [line for line in mounts if "trapless-here" in line]
    say(" ".join([f"left after {after}:", *sorted(loaded()), *roots(), *mounted]))


def begin(*words: str) -> int:
    """Start `trapless WORDS`, as from a shell without a terminal: its process."""
    if process := os.fork():
        return process
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["trapless", *words]
        main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def ended(process: int) -> int:
    """Its status, as a shell says it."""
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return code if code >= 0 else 128 - code


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LOADED_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)


def steps(module: str) -> int:
    own_machine.chosen(())  # reads the experiments
    command = ("evaluate", "--here", "--least", "--no-report", "--module", module)
    status = ended(begin(*command, "--out", str(UNASKED)))
    say(f"without consent: {status}{' and a folder' if UNASKED.exists() else ''}")
    if status := ended(begin(*command, "--yes", "--out", str(RESULTS))):
        return status
    left("the run")
    process = begin(*command, "--yes", "--out", "/run/interrupted", "batch-size")
    wait_until(lambda: "trapless" in loaded() and bool(roots()))
    os.kill(process, signal.SIGINT)
    say(f"interrupted: {ended(process)}")
    left("an interrupt")
    packed = RESULTS.with_name("results.tar.xz")
    if status := ended(begin("report", str(RESULTS), "--pack", str(packed))):
        return status
    sys.stdout.buffer.write(packed.read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(steps(sys.argv[1]))
