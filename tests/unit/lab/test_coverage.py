# SPDX-License-Identifier: GPL-2.0-only
"""The coverage report: its reasons name lines that exist, and gcov reads the data that is made.

It owns the tests of tests/coverage on this machine; what counts in a guest is tested by the run.
"""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.coverage import coverage, coverage_notes
from trapless.base.console import TraplessError

PROGRAM = """\
static int twice(int n)
{
	if (n > 2)
		return n;
	return 2 * n;
}
int main(void)
{
	return twice(1) + twice(2) + twice(3) - 9;
}
"""

needs_gcc_12 = pytest.mark.skipif(
    not all(shutil.which(tool) for tool in ("gcc-12", coverage.GCOV)), reason="needs gcc 12"
)


def arcs(data: bytes) -> list[list[int]]:
    """The counters of each function in a data file, in its order."""
    found, at = [], 4 * coverage_notes.WORD
    while at + 2 * coverage_notes.WORD <= len(data):
        tag, length = struct.unpack_from("<II", data, at)
        at += 2 * coverage_notes.WORD
        if tag == coverage_notes.TAG_ARCS:
            found.append(list(struct.unpack_from(f"<{length // 8}Q", data, at)))
        at += length
    return found


@needs_gcc_12
def test_gcov_reads_data_as_from_the_compiler_itself(tmp_path: Path):
    (tmp_path / "program.c").write_text(PROGRAM)
    for command in ("gcc-12 --coverage -O0 -c program.c", "gcc-12 --coverage program.o", "./a.out"):
        subprocess.run(command.split(), cwd=tmp_path, check=True)
    note, data = tmp_path / "program.gcno", tmp_path / "program.gcda"
    names = [one.name for one in coverage_notes.functions(note.read_bytes())]
    assert sorted(names) == ["main", "twice"]
    counts = dict(zip(names, arcs(data.read_bytes()), strict=True))

    data.write_bytes(coverage_notes.data_file(note.read_bytes(), counts))

    output = subprocess.run(
        [coverage.GCOV, "--json-format", "--stdout", note.name],
        cwd=tmp_path, capture_output=True, check=True,
    )  # fmt: skip
    lines = {
        line["line_number"]: line["count"]
        for line in json.loads(output.stdout)["files"][0]["lines"]
    }
    assert {3: 3, 4: 1, 5: 2, 9: 1}.items() <= lines.items()


def test_notes_of_another_compiler_are_refused():
    with pytest.raises(TraplessError, match="only those of gcc 12"):
        list(
            coverage_notes.functions(
                struct.pack("<I4sII", coverage_notes.NOTE_MAGIC, b"*41B", 0, 0)
            )
        )


def test_each_reason_is_about_a_line_that_exists():
    gone = [
        f"{one.file}: {one.text}"
        for one in coverage.read_reasons()
        if one.text not in {line.strip() for line in coverage.code(one.file)}
    ]
    assert not gone, "tests/coverage/reasons.txt has reasons for lines that are not there"


def test_a_reason_excuses_its_line_and_is_stale_once_that_is_reached():
    name = "kmod/device.c"
    number = coverage.code(name).index("\treturn -ENOTTY;") + 1
    reason = coverage.Reason(name, "return -ENOTTY;", "nobody asks")
    missed = {name: coverage.Source(Counter({number: 0, 1: 0}))}
    reached = {name: coverage.Source(Counter({number: 7, 1: 0}))}

    assert coverage.excused(name, missed[name].missed, [reason]) == {number: "nobody asks"}
    assert coverage.uncovered(missed, [reason]) == 1
    assert coverage.stale(missed, [reason]) == []
    assert coverage.stale(reached, [reason]) == [reason]


def test_a_reason_needs_its_words(tmp_path: Path):
    (tmp_path / "reasons.txt").write_text("kmod/device.c:\n\treturn 0;\n")
    with pytest.raises(TraplessError, match=r"reasons.txt:1: expected FILE: REASON"):
        coverage.read_reasons(tmp_path / "reasons.txt")
