# SPDX-License-Identifier: GPL-2.0-only
"""Compound calls as `trapless doctor --calls` shows them: offered, or off with the reason."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from trapless import calls
from trapless.base.console import TraplessError
from trapless.doctor import compound_calls
from trapless.doctor.capabilities import Host

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [("Y", ""), ("N", "scandir=0"), ("", "older"), (None, "not loaded")],
)
def test_the_module_says_whether_it_offers_the_call(tmp_path, answer, reason):
    parameters = tmp_path / "sys/module/trapless/parameters"
    if answer is not None:
        parameters.mkdir(parents=True)
    if answer:
        (parameters / "scandir").write_text(f"{answer}\n")
    (row,) = compound_calls.examine(Host(tmp_path))
    assert (row.name, row.offered) == ("scandir", answer == "Y")
    assert reason in row.reason
    assert row.offered or "plain calls" in row.reason


def test_numbers_are_the_headers():
    header = (ROOT / "include/uapi/linux/trapless_compound.h").read_text()
    found = re.findall(r"^#define TL_NR_(\w+) (0x\w+)u$", header, re.M)
    assert [(int(nr, 0), name.lower()) for name, nr in found] == list(compound_calls.CALLS)


def test_they_are_shown_behind_the_table_and_by_their_word():
    rows = [calls.CompoundCall(4092, "scandir", False, "the module is not loaded")]

    def shown(*wanted: str, as_json: bool = False) -> str:
        stream = io.StringIO()
        calls.show(wanted, as_json=as_json, stream=stream, compound=rows)
        return stream.getvalue()

    assert shown().endswith(
        "4092  scandir                  compound    off: " + rows[0].reason + "\n"
    )
    assert shown("compound").count("\n") == 1
    assert "scandir" not in shown("read")
    assert shown("read", "compound").count("\n") == 2
    assert shown("scandir") == shown("4092") == shown("compound")
    with pytest.raises(TraplessError, match=r"refused, compound$"):
        shown("scandirs")
    data = json.loads(shown("compound", as_json=True))
    assert data == {
        "calls": [],
        "compound": [{"nr": 4092, "name": "scandir", "offered": False, "reason": rows[0].reason}],
    }
