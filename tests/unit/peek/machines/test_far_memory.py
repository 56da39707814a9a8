# SPDX-License-Identifier: GPL-2.0-only
"""What `trapless peek check --rdma` calls different, and the words in which it refuses.

tests/lab/peek/remote compares a real machine.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from trapless.cli import cli
from trapless.peek.check import far_memory
from trapless.peek.check.far_memory import ROUNDS, Comparison, Look, compare, differences

LOOK = Look(
    release="6.1.0",
    build_id="ab",
    places={"init_task": 4096},
    text="00",
    clock=100,
    threads={"1": "init", "7": "sleep"},
    log=["Linux version"],
    stacks={"1": ["do_wait"], "7": ["hrtimer_nanosleep"]},
)
LATER = replace(LOOK, clock=200)
BETWEEN = replace(LOOK, clock=150)


def test_what_is_the_same_twice_must_be_the_same_in_between():
    assert differences(LOOK, BETWEEN, LATER) == {}
    for changed in ({"release": "6.2"}, {"places": {"init_task": 1}}, {"text": "11"}, {"log": []}):
        name = next(iter(changed))
        found = differences(LOOK, replace(BETWEEN, **changed), LATER)
        assert found == {name: [getattr(LOOK, name), changed[name]]}
    assert differences(LOOK, replace(BETWEEN, clock=99), LATER) == {"clock": [100, 99]}
    assert differences(LOOK, replace(BETWEEN, clock=201), LATER) == {"clock": [100, 201]}


def test_a_thread_that_moves_proves_nothing_and_one_that_is_missing_does():
    moved = replace(BETWEEN, stacks={**LOOK.stacks, "7": ["schedule"]})
    assert differences(LOOK, moved, LATER) == {"stacks: 7": [["hrtimer_nanosleep"], ["schedule"]]}
    assert differences(LOOK, moved, replace(LATER, stacks=moved.stacks)) == {}
    gone = replace(BETWEEN, threads={"1": "init"})
    assert differences(LOOK, gone, LATER) == {"threads: 7": ["sleep", None]}


def compared(*far: Look) -> Comparison:
    """The comparison of a machine that stands still with looks of the other way."""
    near = (replace(LOOK, clock=clock) for clock in (100, 200, 300, 400))
    looks = (replace(one, clock=clock) for one, clock in zip(far, (150, 250, 350), strict=False))
    return compare(lambda: next(near), lambda: next(looks))


def test_a_difference_counts_when_each_round_has_it():
    moved = replace(LOOK, stacks={**LOOK.stacks, "7": ["schedule"]})
    found = [compared(*far) for far in ((LOOK,), (moved, LOOK), (moved, moved, moved))]
    assert [(list(one.different), one.rounds) for one in found] == [
        ([], 1),
        ([], 2),
        (["stacks: 7"], ROUNDS),
    ]
    assert found[0].steady == {"threads": ["1", "7"], "stacks": ["1", "7"]}


FOUND = {
    "different": {},
    "compared": {"text_bytes": 2 << 20, "log": 50, "threads": 90, "stacks": 88},
    "opening": {"reads": 214, "seconds": 0.5},
    "intervals": [{"bytes": 4, "quantiles": [[0.5, 2100.0], [1, 9000.0]]}],
    "interrupts_per_s": {
        "quiet": {"interrupts": 250.0, "softirqs": 100.0},
        "read": {"interrupts": 251.0, "softirqs": 101.0},
    },
}


def test_the_findings_are_told_and_kept(tmp_path):
    said = "\n".join(far_memory.lines(FOUND))
    for part in (
        "90 threads",
        "different: nothing",
        "214 reads",
        "4 B: one each 2.1 µs",
        "251 int",
    ):
        assert part in said
    different = {**FOUND, "different": {"clock": [1, 2]}}
    assert "different: clock" in "\n".join(far_memory.lines(different))
    far_memory.write(FOUND, tmp_path / "file")
    assert json.loads((tmp_path / "file").read_text()) == FOUND
    with pytest.raises(FileExistsError):
        far_memory.write(FOUND, tmp_path / "file")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--rdma web --key k", "--witness HOST and -o FILE"),
        ("--rdma web --key k --witness web --monitor m -o f", "--witness HOST and -o FILE"),
        ("", "--monitor SOCKET"),
        ("--monitor m --witness web", "--monitor SOCKET"),
        ("--monitor m --ssh web", "--ssh and --monitor exclude each other"),
    ],
)
def test_each_way_of_checking_needs_its_witness(words, said):
    done = CliRunner().invoke(cli, ["peek", "check", *words.split()])
    assert done.exit_code == 2 and said in done.output, done.output
