# SPDX-License-Identifier: GPL-2.0-only
"""Standard streams that are closed, full or read by nobody.

This file owns what becomes of a command then: an error in words, and never a traceback. Output of
guests is the lab's own business.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from trapless.base.console import TraplessError
from trapless.base.paths import CACHE_VARIABLE

NAME_CHARS = 40
"""Of a text that cannot be written, before the first character that it fails by."""


@contextmanager
def standard_streams() -> Iterator[None]:
    """Run a command. What it printed is written when the block ends; an OSError of that, or one
    that nobody in the block has explained, becomes a TraplessError."""
    _open_closed()
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python writes when it ends
        if error.errno == errno.EPIPE:
            sys.exit(1)  # whoever reads has enough
        name, cache = str(error.filename or "cannot write"), os.environ.get(CACHE_VARIABLE)
        hint = f"; name another cache with {CACHE_VARIABLE}=DIR"
        hint = hint if cache and name.startswith(cache) else ""
        raise TraplessError(f"{name}: {error.strerror}{hint}") from error
    except UnicodeEncodeError as error:
        part = error.object[max(error.start - NAME_CHARS, 0) : error.end]
        raise TraplessError(
            f"a name cannot be written as {error.encoding}: ...{part!a}; rename that folder or file"
        ) from error


def _open_closed() -> None:
    """Put /dev/null where the caller closed a stream: else a file would get its number."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding != "utf-8":
        sys.stdout.reconfigure(errors="replace")  # what the terminal's encoding lacks is a ?
