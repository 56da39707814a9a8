# SPDX-License-Identifier: GPL-2.0-only
"""Folders of made-up results, as the tests of the report read them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.unit.report.made_up import a_map, a_result
from trapless.base.console import Silent
from trapless.experiments import experiment, report_files
from trapless.report import html, summary
from trapless.report.figures import Figure, Mark, Series, Table
from trapless.results import result_file
from trapless.results.result_file import Metric


def save(folder):
    result_file.save(a_result(), folder / "made-up")
    meta = {"date": "2001-02-03", "qemu": ["qemu", "-m", "1G"], "provenance": {"image": "1.2.3"}}
    meta["checks"] = [{"name": "calls made", "ok": True, "detail": "64 of 64"}]
    meta["command"] = ["trapless", "evaluate", "made-up"]
    (folder / "made-up" / "meta.json").write_text(json.dumps(meta))


def choose(folder, monkeypatch):
    for name in ("CALLS", "MODES", "PROGRAMS", "SEEN"):
        monkeypatch.setattr(summary, name, "made-up")
    result = a_result()
    for metric, value in {
        "getppid.trap.static": 310.0, "getppid.supervisor.static": 115.0,
        "sbrk.trap.static": 400.0, "walk.plain.total": 52.8e6, "walk.batch.total": 12.34e6,
    }.items():  # fmt: skip
        result.metrics[f"{metric}.instructions"] = Metric(value, "instructions", "counted")
    for load in summary.LOADS:
        for part in summary.ACCOUNTS:
            name = f"{load}.sampled.{part}.percent"
            result.metrics[name] = Metric(20.25, "percent", "measured")
    result_file.save(result, folder / "made-up")


@pytest.fixture
def saved(tmp_path):
    """A folder with one experiment that this version does not know."""
    save(tmp_path)
    return tmp_path


@pytest.fixture
def known(saved, monkeypatch):
    """The same with raw data, and an experiment that analyses it to a first value of 400."""
    (saved / "made-up" / "raw.jsonl").write_text("{}\n")
    x, y = (1.0, 2.0), (3.0, 4.0)
    drawn = (
        Figure("f", "A figure", "x", "y", (Series("batch", x, y),), marks=(Mark(2, "paper"),)),
        Table("t", "A table", ("what", "how many"), (("crossings", "17"),), "From the raw data."),
    )
    part = experiment.Spec("made-up", "paper", "What is asked?", "How.", ("A limit.",), (), (1, 1))
    monkeypatch.setattr(experiment, "names", lambda: ("made-up",))
    monkeypatch.setattr(experiment, "get", lambda name: part)
    monkeypatch.setattr(experiment, "analyse", lambda name, folder: a_result(first=400.0))
    monkeypatch.setattr(experiment, "figures", lambda name, folder: drawn)
    return saved


@pytest.fixture
def chosen(saved, monkeypatch):
    """The same folder as results of the experiments that the first screen is made of."""
    choose(saved, monkeypatch)
    return saved


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """The page of two experiments that have drawings with the same ids and titles; made once."""
    folder = tmp_path_factory.mktemp("twins")
    save(folder)
    x, y = (1.0, 2.0), (3.0, 4.0)
    drawn = Figure("f", "A figure", "x", "y", (Series("batch", x, y),))
    table = Table("t", "A table", ("", "how many"), (("crossings", "17"), ("", "18")))
    with pytest.MonkeyPatch.context() as monkeypatch:
        choose(folder, monkeypatch)
        read = report_files.read(folder, Silent())
        section = read.sections[0]
        one = replace(section, figures=(drawn, drawn, a_map()), drawn_tables=(table, table))
        other = replace(one, name="made-up-again", result=replace(one.result, claims=()))
        return html.html(replace(read, sections=(one, other)))
