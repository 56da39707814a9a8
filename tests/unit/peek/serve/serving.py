# SPDX-License-Identifier: GPL-2.0-only
"""What tests of the daemon share: an inventory that observes files, and a wait with a limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trapless.peek.diagnosis.opener import Found, Opener
from trapless.peek.serve.inventory import Inventory
from trapless.peek.serve.observed_vm import Settings
from trapless.peek.serve.workers import Workers

LIMIT_S = 60.0


class NoOpener:
    """Finds no machine."""

    runs = True

    def running(self, files: object) -> list[Found]:
        return []


def settings(opener: Any = None, **others: Any) -> Settings:
    given = {
        "workers": Workers(2),
        "lock": threading.Lock(),
        "interval_ns": 10_000_000,
        "cpu": None,
        "names_max": 0,
        "recordings": None,
        "note": lambda text: None,
    }
    return Settings(opener=opener or NoOpener(), **{**given, **others})


@contextmanager
def observing(*files: Path, **others: Any) -> Iterator[Inventory]:
    """An inventory of these files whose loop runs."""
    over = threading.Event()
    with Opener() as opener:
        inventory = Inventory(settings(opener, **others), ("no machine of this host",), files)
        loop = threading.Thread(target=inventory.run, args=(over.is_set,))
        loop.start()
        try:
            yield inventory
        finally:
            over.set()
            loop.join()


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
