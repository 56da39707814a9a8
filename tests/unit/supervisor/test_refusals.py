# SPDX-License-Identifier: GPL-2.0-only
"""Every reason of a refusal has its words, and library and command say the same."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from trapless import abi
from trapless.abi import Refusal
from trapless.base.console import TraplessError
from trapless.supervisor import refusals

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = ROOT / "build/lib/libtrapless.so"
SAMPLE = """/* A comment, TL_REFUSAL(PTI, 3, "in", "a", "comment") */
TL_REFUSAL(PTI, 3, "a title",
    "a reason of \\"two\\" "
    "pieces",
    "a remedy")
TL_REFUSAL(COMPAT, 36, "b", "c", "d")
"""
ROWS = [pytest.param(row, id=row.name) for row in refusals.table().values()]


def test_every_reason_of_the_interface_has_a_row():
    assert {*refusals.table(), Refusal.NONE} == set(Refusal)
    assert list(refusals.table()) == sorted(refusals.table())


def test_rows_are_read_as_the_compiler_reads_them():
    assert refusals.parse(SAMPLE) == [
        refusals.Row(Refusal.PTI, "a title", 'a reason of "two" pieces', "a remedy"),
        refusals.Row(Refusal.COMPAT, "b", "c", "d"),
    ]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ('TL_REFUSAL(PTI, 3, "a", "b")', "not a row"),
        ('TL_REFUSAL(PTI, 3, "a", "b", "c"), 1', "not a row"),
        ('TL_REFUSAL(PTI, 4, "a", "b", "c")', "does not know PTI with code 4"),
        ('TL_REFUSAL(ITP, 3, "a", "b", "c")', "does not know ITP with code 3"),
    ],
)
def test_what_is_no_row_is_an_error(row, complaint):
    with pytest.raises(TraplessError, match=complaint):
        refusals.parse(SAMPLE + row)


@pytest.mark.parametrize("row", ROWS)
def test_words_go_on_in_a_sentence(row):
    for text in (row.title, row.reason, row.remedy):
        assert text and not text.endswith(".") and "  " not in text
    for text in (row.reason, row.remedy):
        first = text.split()[0]
        assert first[0].islower() or first.isupper() or "_" in first, text


@pytest.mark.parametrize("row", ROWS)
def test_the_library_gives_the_same_reason(row):
    library = ctypes.CDLL(str(LIBRARY))
    library.tl_refusal_text.restype = ctypes.c_char_p
    assert library.tl_refusal_text(int(row.code)).decode() == row.reason


@pytest.mark.parametrize("row", ROWS)
def test_the_manual_explains_it(row):
    manual = (ROOT / "man/trapless.1").read_text().split(".Sh SUPERVISOR MODE")[1]
    _, _, text = manual.partition(f"\n.It {row.title}\n")
    said = " ".join(text.partition("\n.")[0].split())
    assert said == f"{row.reason[0].upper()}{row.reason[1:]}."


def test_a_mask_becomes_rows_in_the_order_of_the_interface():
    everything = (1 << abi.REFUSALS_MACHINE) - 1
    rows = refusals.of_mask(everything)
    assert [row.code for row in rows] == sorted(row.code for row in rows)
    assert len(rows) == abi.REFUSALS_MACHINE and all(row.of_machine for row in rows)
    assert refusals.of_mask(0) == ()


def test_a_reason_of_a_newer_module_is_not_lost():
    assert refusals.unknown_bits(1 << 40 | 1 << Refusal.PTI) == 1 << 40


def test_an_explanation_has_reason_and_remedy():
    row = refusals.table()[Refusal.PTI]
    assert refusals.explain(Refusal.PTI) == f"{row.reason}; {row.remedy}"
