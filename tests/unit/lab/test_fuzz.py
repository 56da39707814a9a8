# SPDX-License-Identifier: GPL-2.0-only
"""The fuzzer's part on this machine: its corpus, its lines, and how a finding is made smaller."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fuzz import fuzz
from trapless.base.console import Silent, TraplessError

ROOT = Path(__file__).resolve().parents[3]
INPUT_MAX = int(
    re.search(r"#define INPUT_MAX (\d+)", (ROOT / "tests/fuzz/fuzzed_program.h").read_text())[1]
)


def test_the_corpus_has_programs_of_a_length_that_the_guest_takes():
    programs = fuzz.read_corpus(fuzz.CORPUS)
    assert len(programs) > 20
    assert len(set(programs)) == len(programs)
    assert all(0 < len(one) <= INPUT_MAX for one in programs)


def test_lines_of_the_guest_are_taken_in_any_pieces():
    result = fuzz.Round()
    reader = fuzz._Reader(result, "test", Silent())
    text = b"run 0102\nrun 03\nnew 03\nstat programs=2 reached=7 of=9\nfinding leak: in use\n"
    for at in range(0, len(text), 7):
        reader(text[at : at + 7])
    assert result.recent == [bytes([1, 2]), bytes([3])]
    assert result.new == [bytes([3])]
    assert result.stat == {"programs": 2, "reached": 7, "of": 9}
    assert result.wrong == "leak: in use"


def test_a_finding_is_made_as_small_as_it_still_shows(monkeypatch: pytest.MonkeyPatch):
    needed = b"\x07\x08"

    def run_round(plan: fuzz.Plan, corpus: list[bytes], progress: Silent) -> fuzz.Round:
        return fuzz.Round(wrong="splat" if all(needed in one for one in corpus) else "")

    monkeypatch.setattr(fuzz, "run_round", run_round)
    programs = [b"\x00\x01", b"\x00\x01\x02\x03\x07\x08\x04\x05\x06"]
    best, again = fuzz.minimise(fuzz.Plan("6.1", 1, 10), programs, Silent())
    assert again
    assert best == [b"\x00\x07\x08"]


def test_a_finding_that_does_not_come_again_is_kept_whole(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fuzz, "run_round", lambda *_: fuzz.Round())
    programs = [b"\x00\x01", b"\x00\x02"]
    assert fuzz.minimise(fuzz.Plan("6.1", 1, 10), programs, Silent()) == (programs, False)


def test_descriptions_for_syzkaller_have_each_constant_and_structure():
    header = (ROOT / "include/uapi/linux/trapless.h").read_text()
    descriptions = (ROOT / "tests/fuzz/trapless.txt").read_text()
    values = (ROOT / "tests/fuzz/trapless.txt.const").read_text()
    names = set(re.findall(r"#define (TL_(?:IOC|ENTER|SWITCH)_\w+)", header))
    names -= {"TL_IOC_MAGIC", "TL_SWITCH_FLAGS"}
    assert len(names) > 15
    for name in names:
        assert name in descriptions
        assert re.search(rf"^{name} = \d+$", values, re.M)
    for structure in re.findall(r"^struct (tl_\w+) \{", header, re.M):
        assert re.search(rf"^{structure} \{{", descriptions, re.M), structure


@pytest.mark.parametrize("kernel", ["6.1", "debug"])
@pytest.mark.parametrize("reload", [False, True])
def test_a_finding_is_replayed_where_it_was_found(tmp_path, monkeypatch, kernel, reload):
    monkeypatch.setattr(fuzz, "WORK", tmp_path)
    plan = fuzz.Plan(kernel, 1, 1.0, reload=reload)
    path = fuzz.save(plan, fuzz.Round(), [b"\x01"], "A note.")
    ran = []
    monkeypatch.setattr(fuzz, "run_round", lambda plan, *_: ran.append(plan) or fuzz.Round())
    assert fuzz.replay(fuzz.parse(["--replay", str(path)]), Silent()) == 0
    assert fuzz.replay(fuzz.parse(["--replay", str(path), "--kernel", "6.12"]), Silent()) == 0
    assert [(one.kernel, one.reload) for one in ran] == [(kernel, reload), ("6.12", reload)]


def test_a_mended_finding_joins_the_corpus_once(tmp_path, monkeypatch):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("# A program.\n0001")
    monkeypatch.setattr(fuzz, "WORK", tmp_path)
    monkeypatch.setattr(fuzz, "ROOT", tmp_path)
    monkeypatch.setattr(fuzz, "CORPUS", corpus)
    wrong = fuzz.Round(wrong="a splat")
    path = fuzz.save(
        fuzz.Plan("6.1", 7, 1), wrong, [b"\x00\x01", b"\x00\x02", b"\x00\x02"], "A note."
    )
    options = fuzz.parse(["--replay", str(path), "--keep"])
    monkeypatch.setattr(fuzz, "run_round", lambda *_: wrong)
    assert fuzz.replay(options, Silent()) == 1
    assert fuzz.read_corpus(corpus) == [b"\x00\x01"]
    monkeypatch.setattr(fuzz, "run_round", lambda *_: fuzz.Round())
    for _ in range(2):
        assert fuzz.replay(options, Silent()) == 0
        assert fuzz.read_corpus(corpus) == [b"\x00\x01", b"\x00\x02"]
    assert corpus.read_text().count("# a splat") == 1
    elsewhere = fuzz.parse(["--replay", str(path), "--keep", "--kernel", "6.12"])
    with pytest.raises(TraplessError, match=r"was found on 6\.1"):
        fuzz.replay(elsewhere, Silent())
    with pytest.raises(SystemExit):
        fuzz.parse(["--keep"])


def test_a_finding_says_who_is_left():
    result = fuzz.Round()
    reader = fuzz._Reader(result, "6.1", Silent())
    reader(b"run 0001\nheld 7 has /dev/trapless open as 3\nheld 7/7 (fuzz) D\n")
    reader(b"finding leak: the module is in use\n")
    first, *held = result.wrong.splitlines()
    assert first == "leak: the module is in use"
    assert held == ["7 has /dev/trapless open as 3", "7/7 (fuzz) D"]
