# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek serve`: observes all machines of this host, until it is told to end.

Owns the order of setting up and taking down: the port and the process that opens machines first,
then all rights that neither needs are given up, then machines are read.
"""

from __future__ import annotations

import resource
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from trapless.peek import rights
from trapless.peek.diagnosis.opener import Opener
from trapless.peek.guest_text import visible
from trapless.peek.sampling import sampler
from trapless.peek.sampling.record import ended_by_signals
from trapless.peek.serve.inventory import Inventory
from trapless.peek.serve.observed_vm import Settings
from trapless.peek.serve.recordings_folder import BYTES_MIN, RecordingsFolder
from trapless.peek.serve.web import Address, Server
from trapless.peek.serve.workers import Workers

WORKERS = 3
"""The number of workers: two of them may wait for guests that make their readers slow."""


@dataclass(frozen=True)
class Options:
    """The options of the command line."""

    address: Address
    interval_ns: int
    cpu: int | None = None
    patterns: Sequence[str] = ()
    files: Sequence[Path] = ()
    names_max: int = 0
    recordings: Path | None = None
    recordings_bytes: int = BYTES_MIN


def serve(options: Options, note: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    sampler.program()  # missing packages are reported at once
    _many_files()
    over = threading.Event()
    with ended_by_signals(over.set), ExitStack() as stack:
        opener = stack.enter_context(Opener())
        recordings = None
        if options.recordings is not None:
            recordings = RecordingsFolder(options.recordings, options.recordings_bytes, note)
        settings = Settings(
            opener=opener,
            workers=Workers(WORKERS),
            lock=threading.Lock(),
            interval_ns=options.interval_ns,
            cpu=options.cpu,
            names_max=options.names_max,
            recordings=recordings,
            note=note,
        )
        inventory = Inventory(settings, options.patterns, options.files)
        server = Server(options.address, inventory)
        stack.callback(server.stop)
        rights.drop(rights.KEPT if recordings is not None else ())
        if recordings is not None:
            stack.enter_context(recordings)
        server.start()
        note(f"{server.address} shows the machines to browsers, and /metrics to Prometheus")
        inventory.run(over.is_set)
        note("ended on request")


def _many_files() -> None:
    """Each machine takes about ten open files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def log(text: str) -> None:
    """A line for the journal, or for a person."""
    stamp = time.strftime("%H:%M:%S ") if sys.stderr.isatty() else ""
    with suppress(OSError):
        print(f"{stamp}{visible(text)}", file=sys.stderr, flush=True)
