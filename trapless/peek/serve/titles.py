# SPDX-License-Identifier: GPL-2.0-only
"""Gives machines their titles, by which people, metrics and recordings know them.

Owns how a title shows whose a machine is, and how many titles and notes a user may make. Each title
is a set of time series for ever in the database of whoever asks, and any user may start processes
with any names. A user's budgets are as large as MOST at first, and grow by the hour.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from trapless.peek.serve import users
from trapless.peek.serve.opener import NAME_CHARS_MAX, Found

TITLES_MOST, TITLES_HOUR = 1000, 200
"""New titles of one user: as many as machines are watched, and so many more an hour."""
NOTES_MOST, NOTES_HOUR = 2000, 3600
"""Lines in the journal about one user's machines."""
KNOWN_MAX = 2 * TITLES_MOST
"""Titles of one user that are not new; those that were given last are kept."""
HOUR_S = 3600.0


@dataclass
class Budget:
    """Of something that one user makes. One thread takes from it."""

    most: int
    hour: int
    _left: float = field(init=False)
    _at_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._left, self._at_s = float(self.most), time.monotonic()

    def take(self) -> bool:
        """Whether one more may be made now."""
        now = time.monotonic()
        grown = (now - self._at_s) * self.hour / HOUR_S
        self._left, self._at_s = min(self._left + grown, self.most), now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Notes:
    """Notes about one user's machines, within a budget. One thread calls."""

    def __init__(self, note: Callable[[str], None], owner: int) -> None:
        self._note, self._owner = note, owner
        self._budget, self._left_out = Budget(NOTES_MOST, NOTES_HOUR), 0

    def __call__(self, text: str) -> None:
        if not self._budget.take():
            self._left_out += 1
            return
        if self._left_out:
            who = _called(self._owner)
            self._note(f"{self._left_out} notes about machines of {who} were left out")
            self._left_out = 0
        self._note(text)


class Titles:
    """The titles of all users' machines. One thread calls."""

    def __init__(self) -> None:
        self._known: dict[int, dict[str, None]] = {}  # of each user, those given last at the end
        self._budgets: dict[int, Budget] = {}

    def give(self, found: Found, is_free: Callable[[str], bool]) -> str:
        """The title of a machine that was found: one that is free, as no two series may have one
        name. Beyond its user's budget it is a number.
        """
        known = self._known.setdefault(found.owner, {})
        budget = self._budgets.setdefault(found.owner, Budget(TITLES_MOST, TITLES_HOUR))
        title = next(filter(is_free, _named(found)))
        if title not in known and not budget.take():
            return next(filter(is_free, _numbered(found.owner)))
        known.pop(title, None)
        known[title] = None
        if len(known) > KNOWN_MAX:
            del known[next(iter(known))]
        return title


def _named(found: Found) -> Iterator[str]:
    """A machine's name; then with its pid, then with numbers: another may be called by both."""
    whose = _whose(found.owner)
    for tail in itertools.chain(("", f"-{found.pid}"), (f"-{n}" for n in itertools.count(2))):
        tail += whose
        yield f"{found.title[: NAME_CHARS_MAX - len(tail)]}{tail}"


def _numbered(owner: int) -> Iterator[str]:
    whose = _whose(owner)
    return (f"machine-{number}{whose}" for number in itertools.count(1))


def _whose(owner: int) -> str:
    """The end of a title, which nobody else's title has: the user, where others would not expect
    that one."""
    return "" if users.is_trusted(owner) else f" ({_called(owner)})"


def _called(owner: int) -> str:
    return users.name(owner) or f"uid {owner}"
