# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""The counts of a batch.

`python -m tests.abi.declarations` makes them from the rows of trapless_fields.h.
"""

from __future__ import annotations

from typing import NamedTuple


class Stats(NamedTuple):
    """struct tl_stats: counts since a batch was created."""

    crossings: int
    """Entries into the module: batch, notify, wait, worker."""

    executed: int
    """Requests whose system call was made."""

    refused: int
    """Requests answered without a call: unknown or not allowed."""

    interrupted: int
    """Batches and worker runs ended early by a signal."""

    bypassed: int
    """Entries answered -EBUSY: the thread is traced or audited."""

    sleeps: int
    """Times a worker went to sleep."""

    wakeups: int
    """Times a sleeping worker was woken for requests."""

    dropped: int
    """Submitted slot numbers out of range, running or canceled."""


counted = Stats._make
"""How the extension makes one."""
