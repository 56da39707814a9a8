# SPDX-License-Identifier: GPL-2.0-only
"""Tells which user of this host answers for a user number, and what that user is called.

Owns the reading of /etc/passwd and /etc/subuid. The second one gives many users 65,536 more numbers
each, which they may take as they like: who counts by numbers would count such a user as often. No
service of names is asked, because one on another host may not answer.
"""

from __future__ import annotations

import bisect
import os
import time
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from trapless.peek.guest_text import visible

PASSWD, SUBUID = Path("/etc/passwd"), Path("/etc/subuid")
BYTES_MAX = 4 << 20
"""Of each of these files."""
READ_S = 60.0
"""For so long they are taken to be as they were."""
NAME_CHARS_MAX = 32


@dataclass(frozen=True)
class _Users:
    """What the files say. `ranges`: first number, number after the last one, owner; in order."""

    read_s: float
    names: dict[int, str]
    ranges: list[tuple[int, int, int]]


def owner(uid: int) -> int:
    """The user to whom a number was given, which may be its own. Any thread may ask.

    For numbers of root or of this process's user, which containers have, the first of their range
    answers: whoever is in a container has no share of root's.
    """
    ranges = _users().ranges
    at = bisect.bisect_right(ranges, uid, key=itemgetter(0))
    first, end, whose = ranges[at - 1] if at else (0, 0, 0)
    if uid >= end:
        return uid
    return first if is_trusted(whose) else whose


def is_trusted(uid: int) -> bool:
    """Whether a number is root's, or that of the user of this process."""
    return uid in (0, os.geteuid())


def name(uid: int) -> str:
    """The name of a user, printable and bounded; empty where /etc/passwd has none of that kind."""
    return _users().names.get(uid, "")


_known = _Users(-READ_S, {}, [])  # replaced as a whole, by whichever thread finds it old


def _users() -> _Users:
    global _known
    if time.monotonic() - _known.read_s >= READ_S:
        _known = _read()
    return _known


def _read() -> _Users:
    uids: dict[str, int] = {}
    for words in _lines(PASSWD):
        if len(words) > 2 and words[2].isdecimal():
            uids.setdefault(words[0], int(words[2]))
    names: dict[int, str] = {}
    for text, uid in uids.items():
        names.setdefault(uid, visible(text) if len(text) <= NAME_CHARS_MAX else "")
    ranges = []
    for words in _lines(SUBUID):
        if len(words) == 3 and words[1].isdecimal() and words[2].isdecimal():
            first, count = int(words[1]), int(words[2])
            whose = int(words[0]) if words[0].isdecimal() else uids.get(words[0])
            if whose is not None:
                ranges.append((first, first + count, whose))
    return _Users(time.monotonic(), names, sorted(ranges))


def _lines(path: Path) -> list[list[str]]:
    try:
        with path.open("rb") as file:
            text = os.fsdecode(file.read(BYTES_MAX))
    except OSError:
        return []
    return [line.strip().split(":") for line in text.split("\n")]
