# SPDX-License-Identifier: GPL-2.0-only
"""docs/questions.md has each refusal with its cause and remedy, as messages and doctor show it."""

from __future__ import annotations

from tests.unit.doctor import questions


def test_tables_are_those_of_the_rows() -> None:
    text = questions.DOCUMENT.read_text()
    assert questions.filled(text) == text, "run: python -m tests.unit.doctor.questions"


def test_a_row_that_changes_changes_the_document(monkeypatch) -> None:
    monkeypatch.setitem(questions.TABLES, "calls", lambda: "| other | rows |")
    text = questions.DOCUMENT.read_text()
    assert questions.filled(text) != text
