# SPDX-License-Identifier: GPL-2.0-only
"""Runs the daemon as its users do, and measures it: scrapes, processor time, memory.

Owns the daemon's process and what is read of it in /proc. part_cost.py has the machines that it
observes, and decides what is measured when.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from trapless.base.paths import repo_root
from trapless.base.tools import has_ended, wait
from trapless.peek.errors import PeekError

READY_S = 600.0
LOOK_S = 0.5
END_S = 600.0
"""For a daemon that hangs; one that has something to save on a busy machine takes seconds."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """The time and memory that the daemon takes, with all its child processes that still run."""

    cpu_s: float  # since it began, with that of processes that have ended
    pss_kb: int  # memory, each page divided among all processes that share it
    rss_kb: int  # the same, each page counted for each process
    processes: int


class Daemon:
    """A daemon that serves."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self._process, self._url = process, url

    def scrape(self) -> dict[tuple[str, str], float]:
        """The values by metric and machine; those of one machine are added up."""
        with urllib.request.urlopen(f"{self._url}metrics", timeout=READY_S) as answer:
            text = answer.read().decode()
        values: dict[tuple[str, str], float] = {}
        for family in text_string_to_metric_families(text):
            for one in family.samples:
                state = one.labels.get("state", "")
                key = (f"{one.name} {state}".strip(), one.labels.get("vm", ""))
                values[key] = values.get(key, 0.0) + one.value
        return values

    def total(self, name: str) -> float:
        """The sum of a metric over all machines."""
        return sum(value for (metric, _), value in self.scrape().items() if metric == name)

    def await_sampled(self, count: int, look: Callable[[], object]) -> None:
        """Wait until so many machines are sampled; `look` is called meanwhile."""
        end = time.monotonic() + READY_S
        while self.total("trapless_vm_up") < count:
            if time.monotonic() > end or has_ended(self._process):
                raise PeekError(f"the daemon samples {self.total('trapless_vm_up'):.0f} machines")
            look()
            time.sleep(LOOK_S)

    def usage(self) -> Usage:
        """The time and memory that it takes now."""
        ticks = pss = rss = 0
        family = _family(self._process.pid)
        for pid in family:
            with suppress(OSError, ValueError):  # ended meanwhile
                words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, words[11:15]))
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                kb = {key: int(value) for key, value in re.findall(r"(\w+): +(\d+) kB", rollup)}
                pss += kb["Pss"]
                rss += kb["Rss"]
        return Usage(ticks / TICKS, pss, rss, len(family))


@contextmanager
def daemon(pattern: str, files: Sequence[Path], interval_ns: int) -> Iterator[Daemon]:
    """Run the daemon for the machines whose names have a pattern, and those with these memories."""
    argv = [sys.executable, "-m", "trapless", "peek", "serve", "--listen", "127.0.0.1:0"]
    argv += ["--interval-us", f"{interval_ns / 1000:g}", "--vm", pattern]
    argv += [word for path in files for word in ("--ram", str(path))]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, cwd=repo_root()) as process:
        try:
            assert process.stderr is not None
            first = process.stderr.readline()
            url = re.match(r"(http://[^/]+/)", first)
            if url is None:
                raise PeekError(f"the daemon did not begin: {first}{process.stderr.read()}")
            yield Daemon(process, url[1])
            process.send_signal(signal.SIGTERM)
            try:
                if wait(process, END_S):
                    raise PeekError(f"the daemon ended with {process.returncode}")
            except subprocess.TimeoutExpired as error:
                raise PeekError(f"the daemon did not end in {END_S:g} s") from error
        finally:
            process.kill()


def _family(root: int) -> list[int]:
    """A process and all that descend from it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                words = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(words[1])
    family = [root]
    for pid in family:
        family += [child for child, parent in parents.items() if parent == pid]
    return family
