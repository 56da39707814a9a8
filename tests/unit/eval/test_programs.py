# SPDX-License-Identifier: GPL-2.0-only
"""Real programs in both modes: their root, what the guest is told, how rows become figures.

Owns the tests of trapless/stock/real_programs.py, eval/tools/modes and the part
"programs" of mode-switch, as far as they need no VM: here the runner finds no module.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from eval.mode_switch import part_programs as both_modes
from eval.tools.modes import modes
from eval.tools.modes.modes import Program
from tests.make import make
from tests.unit.stock.debian_repository import Repository, needs_apt
from trapless.base.console import Silent, TraplessError
from trapless.experiments import experiment
from trapless.stock import real_programs, stores
from trapless.supervisor.control import Calls

ROOT = Path(__file__).resolve().parents[3]
RUNNER = ROOT / "build" / "eval" / "tools" / "modes" / "modes"


@pytest.fixture
def mirror(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A mirror with two programs and a library that both need."""
    monkeypatch.setattr(real_programs, "SUITES", ("teststable",))
    monkeypatch.setattr(stores, "_refreshed", set())
    repository.add("libone", "1-1", {"usr/lib/libone.so": b"one"})
    repository.add("one", "2-1", {"usr/bin/one": b"1"}, depends="libone (>= 1)")
    repository.add("two", "3-1", {"usr/bin/two": b"2"}, depends="libone")
    repository.publish()
    return repository


@needs_apt
def test_programs_are_unpacked_once_with_what_they_need(mirror: Repository) -> None:
    found = real_programs.unpacked(Silent(), ["one"], [])
    assert found.versions == {"libone": "1-1", "one": "2-1"}
    assert (found.root / "usr/bin/one").read_bytes() == b"1"
    assert (found.root / "usr/lib/libone.so").exists()
    assert all((found.root / name).is_dir() for name in real_programs.FOLDERS)
    (mirror.folder / "dists").rename(mirror.folder / "gone")  # the cache asks no mirror
    assert real_programs.unpacked(Silent(), ["one"], []) == found


@pytest.mark.slow
@needs_apt
def test_another_list_of_programs_is_fetched_anew(mirror: Repository) -> None:
    real_programs.unpacked(Silent(), ["one"], [])
    found = real_programs.unpacked(Silent(), ["two", "one"], [])
    assert set(found.versions) == {"libone", "one", "two"}
    assert (found.root / "usr/bin/two").exists()


@pytest.mark.slow
@needs_apt
def test_a_damaged_record_is_not_trusted(mirror: Repository) -> None:
    found = real_programs.unpacked(Silent(), ["one"], [])
    record = found.root.parent / real_programs.RECORD
    for text in ("", "{", "[]", '{"format": 99}', '{"format": 1}'):
        record.write_text(text)
        assert real_programs.unpacked(Silent(), ["one"], []) == found, text
        assert json.loads(record.read_text())["wanted"] == {"packages": ["one"], "sources": []}


@pytest.mark.slow
@needs_apt
def test_sources_are_unpacked_as_their_authors_released_them(mirror: Repository) -> None:
    mirror.add_source("three", "1.5", {"Makefile": b"all:", "src/three.c": b"int three;"})
    mirror.publish()
    found = real_programs.unpacked(Silent(), ["one"], ["three"])
    place = found.root / real_programs.SOURCE_FOLDER / "three"
    assert found.versions["three"] == "1.5"
    assert (place / "src/three.c").read_bytes() == b"int three;"
    assert sorted(path.name for path in place.iterdir()) == ["Makefile", "src"]


@pytest.mark.slow
@needs_apt
@pytest.mark.parametrize("damaged", [True, False])
def test_a_source_that_is_not_what_the_index_says_is_refused(
    mirror: Repository, damaged: bool
) -> None:
    tarball = mirror.add_source("three", "1.5", {"Makefile": b"all:"})
    mirror.publish()
    if damaged:
        tarball.write_bytes(tarball.read_bytes()[:-1] + b"x")
    name = "three" if damaged else "four"
    with pytest.raises(TraplessError, match=f"could not download|no source {name}"):
        real_programs.unpacked(Silent(), ["one"], [name])
    assert not (found := list((mirror.folder.parent / "cache").glob("programs/*"))), found


def test_each_program_of_the_part_is_from_a_package_of_the_root() -> None:
    assert set(both_modes.PACKAGE_OF) == {program.name for program in both_modes.PROGRAMS}
    assert set(both_modes.PACKAGE_OF.values()) <= {*real_programs.PACKAGES, "python3.11"}


def test_words_reach_the_program_as_they_are(tmp_path: Path) -> None:
    line = modes.shell_line(Program("x", "", ("echo", "a  b", "$HOME", "'")), 3, "counted", 9)
    printer = tmp_path / "modes"
    printer.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    printer.chmod(0o755)
    line = line.replace("/tmp/modes", shlex.quote(str(printer)))
    said = subprocess.run(["sh", "-c", line], capture_output=True, text=True).stdout.splitlines()
    assert said[-5:] == ["--", "echo", "a  b", "$HOME", "'"]
    assert said[said.index("--repeats") + 1] == "3"


@pytest.fixture(scope="module", autouse=True)
def runner() -> None:
    make(RUNNER)


def modes_run(tmp_path: Path, *words: str) -> tuple[int, list[dict[str, object]]]:
    """Rows that the runner prints here, without its calibration."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    argv = [RUNNER, "--call", "x", *words]
    done = subprocess.run(argv, capture_output=True, env=environment, timeout=600)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_a_program_that_prints_the_same_passes(tmp_path: Path) -> None:
    status, rows = modes_run(tmp_path, "--repeats", "2", "--", "sh", "-c", "echo a; echo b >&2")
    assert status == 0
    assert "skipped" in rows[0]  # no module here
    assert [row["mechanism"] for row in rows if "mechanism" in row] == ["trap", "trap"]
    assert rows[-1] == {"check": "x: the same output in every run", "bytes": 4}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("date +%N", "printed something else at byte"),
        (
            "echo said; exit 3",
            "x in user mode: sh did not end with status 0 but with wait status 0x300",
        ),
        ("kill -9 $$", "wait status 0x9"),
        ("sleep 30", "it did not end in time"),
    ],
)
def test_a_program_that_does_not_is_a_failure(tmp_path: Path, command: str, says: str) -> None:
    status, rows = modes_run(tmp_path, "--limit", "1", "--", "sh", "-c", command)
    assert status == 1
    assert says in str(rows[-1]["failure"])


SERVER = """\
import signal, socket, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    connection, _ = listener.accept()
    connection.sendall(b"hello\\n")
    connection.close()
"""
CLIENT = """\
import socket, sys
for _ in range(20):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        print(connection.makefile().read(), end="")
"""


def serve(tmp_path: Path, after: str) -> tuple[int, list[dict[str, object]]]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    load = shlex.join([sys.executable, "-c", CLIENT, port]) + f"\n{after}"
    server = [sys.executable, "-c", SERVER, port]
    return modes_run(tmp_path, "--repeats", "2", "--port", port, "--load", load, "--", *server)


def test_a_server_under_load_passes(tmp_path: Path) -> None:
    status, rows = serve(tmp_path, "echo requests 20")
    assert status == 0, rows
    assert [row["ops"] for row in rows if "mechanism" in row] == [20, 20]
    assert rows[-1] == {"check": "x: the same replies in every run"}


@pytest.mark.parametrize(
    ("after", "says"),
    [
        ("date +%N; echo requests 20", "printed something else"),
        ("echo done", "did not say how many requests"),
        ("exit 4", "the load did not end with status 0"),
    ],
)
def test_a_load_that_fails_is_a_failure(tmp_path: Path, after: str, says: str) -> None:
    status, rows = serve(tmp_path, after)
    assert status == 1
    assert says in str(rows[-1]["failure"])


def rows_of(name: str, trap: list[int], supervisor: list[int], kernel: int, ops: int = 1):
    """What a boot of the part prints about one program that makes 1,000 calls."""
    rows = []
    for mechanism, values in (("trap", trap), ("supervisor", supervisor)):
        for repeat, value in enumerate(values):
            row = {"kind": "counted", "call": name, "mechanism": mechanism, "ops": ops, "n": 1}
            rows.append({**row, "unit": "instructions", "value": value, "repeat": repeat})
    calls = {"calls_direct": 900 - kernel, "calls_worked": 90, "calls_left": 10}
    demoted = {"demoted_interrupt": 3, "demoted_exit": 10}
    rows += [{"call": name, **calls, "calls_kernel": kernel, **demoted} for _ in supervisor]
    return rows


def test_rows_are_read_by_program() -> None:
    found = modes.runs_of(rows_of("ls", [100, 110], [80, 90], 5) + rows_of("git", [7], [], 0))
    assert found["ls"].trap == [100, 110]
    assert found["ls"].supervisor == [80, 90]
    assert found["ls"].calls == [Calls(895, 90, 10, 5)] * 2
    assert found["ls"].shares[0] == pytest.approx(0.985)
    assert found["ls"].demotions[0] == {"demoted_interrupt": 3, "demoted_exit": 10}
    assert found["git"].trap == [7] and not found["git"].calls


def test_a_program_that_keeps_too_few_calls_is_refused() -> None:
    both_modes.check(rows_of("ls", [100], [80], 40))
    with pytest.raises(TraplessError, match=r"ls: 94\.9% of 1000 calls"):
        both_modes.check(rows_of("ls", [100], [80], 41))


def test_a_program_whose_calls_nobody_counted_is_refused() -> None:
    rows = rows_of("nginx", [100], [80], 0)
    rows[-1] |= {"calls_direct": 0, "calls_worked": 0, "calls_left": 0}
    with pytest.raises(TraplessError, match=r"nginx: 0\.0% of 0 calls"):
        both_modes.check(rows)


def test_metrics_tell_share_and_saving() -> None:
    rows = rows_of("ls", [1000, 1010, 1020], [900, 909, 920], 5) + rows_of("git", [7], [], 0)
    metrics = both_modes.analyse(experiment.Raw(rows, {})).metrics
    for name, one in metrics.items():
        one.check(name)
    saved = metrics["ls.supervisor.saved.ratio"]
    assert (saved.value, saved.spread) == (pytest.approx(0.1), pytest.approx(40 / 1010))
    assert metrics["ls.supervisor.share.ratio"].value == pytest.approx(0.985)
    assert metrics["ls.trap.total.instructions"].value == 1010
    assert [name for name in metrics if name.startswith("git")] == ["git.trap.total.instructions"]


def test_the_table_says_where_a_saving_is_not_clear() -> None:
    rows = rows_of("ls", [10**6] * 3, [810_000] * 3, 5)
    rows += rows_of("redis", [5000, 6000], [4000, 5500], 0, ops=10)
    rows.append({"versions": {"ls": "2:9.1-1+deb12u1"}})
    (table,) = both_modes.figures(experiment.Raw(rows, {}))
    ls, redis = table.rows
    assert (ls[0], ls[2], ls[3]) == ("ls 9.1", "1,000", "98.50%")
    assert ls[4:] == ("1.0 M", "810,000", "19.00% ± 0.00%", "190")
    assert redis[2] == "100.00 a request" and redis[4] == "550 a request"
    assert redis[7] == "below the spread"


def test_nothing_is_shown_where_supervisor_mode_is_refused() -> None:
    assert both_modes.figures(experiment.Raw(rows_of("ls", [100], [], 0), {})) == ()
