# SPDX-License-Identifier: GPL-2.0-only
"""Errors of the operating system that no part has explained, in words for a person.

This file owns what such a message names: the file, or the call that failed where there is none.
"""

from __future__ import annotations

import errno
import linecache  # which click has imported: where files cannot be opened it is too late
import os
import re
from itertools import islice

from trapless.base.console import TraplessError
from trapless.base.paths import CACHE_VARIABLE

REMEDIES = {
    errno.EMFILE: "the limit of open files is too low (ulimit -n)",
    errno.EFBIG: "the limit of a file's size is too low (ulimit -f)",
    errno.EAGAIN: "the limit of processes may be too low (ulimit -u)",
}
"""By errors that a limit of the caller's makes."""

CALL = re.compile(r"(?:\w+\.)*_*(\w+)\(")


def explained(error: OSError) -> TraplessError:
    """The same error for a person: what failed, why, and the remedy where one is known."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        if error.errno == errno.ENOENT and not _has_folder():
            return TraplessError("the current folder was removed; change to another folder")
        remedy = f"; {REMEDIES[error.errno]}" if error.errno in REMEDIES else ""
        return TraplessError(f"{_failed_call(error)}: {reason}{remedy}")
    names = [_text(name) for name in (error.filename, error.filename2) if name is not None]
    cache = os.environ.get(CACHE_VARIABLE)
    hint = f"; name another cache with {CACHE_VARIABLE}=DIR"
    hint = hint if cache and names[0].startswith(cache) else ""
    return TraplessError(f"{' -> '.join(names)}: {reason}{hint}")


def _text(name: object) -> str:
    return os.fsdecode(name) if isinstance(name, bytes) else str(name)


def _has_folder() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _failed_call(error: OSError) -> str:
    """The function that raised an error, as in memfd_create."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return "the system"
    code = last.tb_frame.f_code
    number, _, column, _ = next(islice(code.co_positions(), last.tb_lasti // 2, None))
    line = linecache.getline(code.co_filename, number or 0).encode()
    call = CALL.match(line[column or 0 :].decode(errors="replace"))
    return call[1] if call else code.co_name.strip("_<>")
