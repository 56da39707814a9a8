# SPDX-License-Identifier: GPL-2.0-only
"""Progress for tests: it shows nothing, and keeps the notes that a person would have seen."""

from __future__ import annotations

from trapless.base.console import Silent


class Notes(Silent):
    """What was noted is in `said`."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)
