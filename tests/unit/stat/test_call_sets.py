# SPDX-License-Identifier: GPL-2.0-only
"""The sets of `stat -e` are those of strace.

strace answers each call of all_calls.c itself, those of a set by another error than the others: so
no call is made, and its output says which are in the set.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from trapless import calls
from trapless.stat.call_sets import SETS

SOURCE = Path(__file__).parent / "strace/all_calls.c"
IN, OUT = "EXDEV", "ENOSYS"
BEGINS_IT = "execve"  # the call that starts the program, which must be made
LINE = re.compile(rf"^(\w+)\(.*= -1 ({IN}|{OUT}) .*\(INJECTED\)$", re.M)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("sets") / "all_calls"
    argv = ["gcc", "-Wall", "-Werror", "-O", "-nostdlib", "-static", "-o", program, SOURCE]
    subprocess.run(argv, check=True)
    return program


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("name", SETS)
def test_a_set_is_that_of_strace(program: Path, tmp_path: Path, name: str) -> None:
    output = tmp_path / "output"
    answers = [f"inject=!%{name}:error={OUT}", f"inject=%{name}:error={IN}"]
    words = [word for answer in answers for word in ("-e", answer)]
    first = ["-e", f"inject={BEGINS_IT}:error={OUT}:when=2+"]
    subprocess.run(
        ["strace", "-o", output, *words, *first, program], stderr=subprocess.DEVNULL, timeout=60
    )
    answered = dict(LINE.findall(output.read_text()))
    answered.pop(BEGINS_IT, None)
    assert len(answered) > 350
    assert {call for call, error in answered.items() if error == IN} == SETS[name] & set(answered)


def test_sets_have_calls_of_the_table_alone() -> None:
    known = {call.name for call in calls.load()}
    for name, members in SETS.items():
        assert members and members <= known, name
