# SPDX-License-Identifier: GPL-2.0-only
"""Counting whole commands: what the guest is told, how rows are read, what is not accepted."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from eval.batch_size import part_walk as walk
from eval.tools.crossings import crossings
from eval.tools.crossings.crossings import Command, Counts
from eval.tools.trees import trees
from trapless.base.console import TraplessError
from trapless.experiments import experiment

ROOT = Path(__file__).resolve().parents[3]


def row(call, mechanism, unit, value, **more):
    named = {"kind": "counted", "call": call, "mechanism": mechanism, "unit": unit}
    return {**named, "value": value, "n": 1, "ops": 1, "repeat": 0, **more}


def rows_of(crossed, instructions, label="counted", calls=7000):
    """What a boot of the part prints, if every command counted these."""
    rows = []
    for command in walk.COMMANDS:
        key, boot = (command.call, command.mechanism), {"boot": f"walk-{label}"}
        rows += [row(*key, "crossings", value, **boot) for value in crossed[key]]
        rows += [row(*key, "instructions", value, **boot) for value in instructions[key]]
        if command.call in walk.ORIGINAL:
            by_batch = command.mechanism == "batch"
            own = {"library_calls": calls, "library_crossings": crossed[key][0] - 50}
            backend = {"backend": "module" if by_batch else "plain"}
            rows.append({"call": key[0], "mechanism": key[1], **own, **backend})
    return rows


def made_up(batch=120, plain=9000):
    """What each command crossed, and its instructions."""
    keys = [(command.call, command.mechanism) for command in walk.COMMANDS]
    crossed = {key: (batch if key[1] == "batch" else plain,) * 2 for key in keys}
    instructions = {key: (500_000, 490_000) if key[1] == "batch" else (990_000,) for key in keys}
    return crossed, instructions


def test_words_reach_the_command_as_they_are(tmp_path, monkeypatch):
    printer = tmp_path / "crossings"
    printer.write_text('#!/bin/sh\necho "[$A]"; printf "%s\\n" "$@"\n')
    printer.chmod(0o755)
    monkeypatch.setattr(crossings, "GUEST_PROGRAM", str(printer))
    command = Command("x", "plain", ("/bin/echo", "a b", "$HOME", "'"), "/o", (("A", "1 $B"),))
    line = crossings.shell_line(command, 7)
    said = subprocess.run(["sh", "-c", line], capture_output=True, text=True).stdout.splitlines()
    assert said[0] == "[1 $B]"
    assert said[1:9] == ["--call", "x", "--mechanism", "plain", "--output", "/o", "--repeats", "7"]
    assert said[9:] == ["--", "/bin/echo", "a b", "$HOME", "'"]


def test_rows_are_read_by_command():
    rows = [
        row("du", "plain", "crossings", 10),
        row("du", "plain", "crossings", 10),
        row("du", "plain", "instructions", 1000),
        row("du", "plain", "ns", 5),
        {"kind": "measured", "call": "du", "mechanism": "plain", "unit": "crossings", "value": 1},
        {"calibration": "instructions"},
    ]
    assert crossings.counts(rows) == {("du", "plain"): Counts((10, 10), (1000,))}


def test_a_command_without_one_of_its_units_is_an_error():
    with pytest.raises(KeyError):
        crossings.counts([row("du", "plain", "crossings", 10)])


def test_sound_rows_pass_and_give_the_metrics():
    rows = rows_of(*made_up()) + rows_of(*made_up(), label="counted-unzeroed")
    walk.check(rows[: len(rows) // 2])
    metrics = walk.analyse(experiment.Raw(rows, {})).metrics
    for name, one in metrics.items():
        one.check(name)
    assert metrics["walk.batch.crossings.count"].value == 120
    assert metrics["du.plain.crossings.count"].value == 9000
    assert metrics["find.plain.crossings.count"].n == 2
    total = metrics["walk.batch.total.instructions"]
    assert (total.value, total.n, total.spread) == (490_000, 2, 10_000)
    assert "walk.plain.total_unzeroed.instructions" in metrics


def test_the_table_compares_with_du_and_find():
    rows = rows_of(*made_up()) + rows_of(*made_up(), label="counted-unzeroed")
    (table,) = walk.figures(experiment.Raw(rows, {}))
    cells = {(line[0], line[1]): line for line in table.rows}
    assert cells["walk", "batches"][2:] == ("120", "0.5 M", "0.5 M", "75.0", "49%", "49%")
    assert cells["walk --find", "plain calls"][5] == "1.0"
    assert cells["du", "plain calls"][5:] == ("", "", "")


def test_repeats_that_differ_are_refused():
    crossed, instructions = made_up()
    crossed["du", "plain"] = (9000, 9001)
    with pytest.raises(TraplessError, match=r"du by plain crossed \(9000, 9001\)"):
        walk.check(rows_of(crossed, instructions))


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("library_crossings", 5, "the library says 5"),
        ("library_crossings", 9999, "the library says 9999"),
        ("library_calls", 6999, "calls were made by batch and by plain calls"),
        ("backend", "plain", "ran by the plain backend"),
    ],
)
def test_counts_that_the_library_contradicts_are_refused(field, value, says):
    rows = rows_of(*made_up())
    for one in rows:
        if one.get("library_calls") and (one["call"], one["mechanism"]) == ("walk", "batch"):
            one[field] = value
    with pytest.raises(TraplessError, match=says):
        walk.check(rows)


def test_the_archive_is_the_same_whenever_it_is_made(tmp_path):
    tree = tmp_path / "include"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "a.h").write_text("a\n")
    os.utime(tree / "sub" / "a.h", (1, 1))
    assert trees.pack(tree, tmp_path / "one.tar") == 3
    os.utime(tree / "sub" / "a.h", (2, 2))
    trees.pack(tree, tmp_path / "two.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    with tarfile.open(tmp_path / "one.tar") as tar:
        assert tar.getnames() == ["tree", "tree/sub", "tree/sub/a.h"]


def guest(tmp_path, program):
    """The guest's script run here, in a folder, by stand-ins that count nothing."""
    for name in ("out", "tree", "bin"):
        (tmp_path / name).mkdir()
    script = walk.guest_script(1).replace("tar -x -f /tree.tar -C /; rm /tree.tar; mkdir /out", ":")
    for name in ("bin", "out", "tree"):
        script = script.replace(f"/{name}", f"{tmp_path}/{name}")
    programs = {
        "crossings": 'while [ "$1" != -- ]; do [ "$1" = --output ] && o=$2; shift; done\n'
        'shift; exec "$@" > "$o"',
        "walk": program,
        "du-of-host": "echo 4 tree",
        "find-of-host": "echo tree; echo tree/a",
        "true-of-host": ":",
    }
    for name, text in programs.items():
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=600)


WALK = """\
case "$*" in *--stats*) echo "walk: 70 calls, 7 crossings, module" >&2;; esac
case "$*" in *--find*) echo tree; echo tree/a;; *) echo 4 tree;; esac"""


def test_the_guests_script_prints_rows(tmp_path):
    done = guest(tmp_path, WALK)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows[-1] == {"complete": True}
    checks = {one["check"]: one["lines"] for one in rows if "check" in one}
    assert checks == {
        "walk prints what du prints": 1,
        "walk-s prints what du-s prints": 1,
        "walk-find prints what find prints": 2,
    }
    said = [one for one in rows if "library_calls" in one]
    assert len(said) == 6
    assert all((one["library_calls"], one["library_crossings"]) == (70, 7) for one in said)
    assert {one["backend"] for one in said} == {"module"}


def test_output_that_differs_fails_the_experiment(tmp_path):
    done = guest(tmp_path, WALK.replace("tree/a", "tree/b"))
    assert done.returncode == 1
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["failure"].startswith("walk-find by batch is not find")


def test_the_counter_refuses_a_machine_that_does_not_count():
    subprocess.run(["make", "-s", "build/eval/tools/crossings/crossings"], cwd=ROOT, check=True)
    program = ROOT / "build" / "eval" / "tools" / "crossings" / "crossings"
    done = subprocess.run([program, "--call", "x", "--", "/bin/true"], capture_output=True)
    assert done.returncode == 1
    assert b"the counter does not count instructions" in done.stdout
    done = subprocess.run([program, "--call", "x"], capture_output=True)
    assert done.returncode == 1 and b"usage: crossings" in done.stdout
