# SPDX-License-Identifier: GPL-2.0-only
"""Results of several kernels side by side: which calls, counts and claims differ."""

from __future__ import annotations

import doctest
import shutil
from dataclasses import replace

import pytest
from click.testing import CliRunner

from trapless import cli
from trapless.base.console import Silent
from trapless.experiments import report_files
from trapless.report import kernel_comparison, readme, saved_page
from trapless.results import result_file
from trapless.results.claims import NOT_RUN, published, undecided
from trapless.results.result_file import Metric

RELATED = ("srv-kml-mysql", "srv-anycall")


def test_the_examples_hold():
    assert doctest.testmod(kernel_comparison).failed == 0


@pytest.fixture
def two(chosen, tmp_path_factory):
    """Results of one kernel, and of another one whose batches and one claim differ."""
    other = tmp_path_factory.mktemp("kernels") / "other"
    shutil.copytree(chosen, other)
    result = result_file.load(other / "made-up")
    metrics = {
        **result.metrics,
        "getppid.batch.n32.instructions": Metric(302.0, "instructions", "counted", 3),
        "getppid.plain.n1.instructions": Metric(380.0, "instructions", "counted", 3),
    }
    claims = (replace(result.claims[0], holds=None, note="Not run."), *result.claims[1:])
    changed = replace(result, kernel="4.5.6-other", metrics=metrics, claims=claims)
    result_file.save(changed, other / "made-up")
    return chosen, other


def test_what_differs_is_said_and_nothing_else(two):
    text = kernel_comparison.document([report_files.read(folder, Silent()) for folder in two])
    assert "| call | 1.2.3-stock | 4.5.6-other |" in text
    assert "| getppid: batch | 151 | 302 |" in text
    assert "| getppid: plain call | 347 | 347 |" in text
    assert "1 differ by more than 5%" in text
    assert "| made-up getppid.batch.n32.instructions | 151 | 302 |" in text
    assert "getppid.plain.n1" not in text  # by half a percent
    here = f"{published()['wsc-int'].claim} | holds | open |"
    assert f"| wsc-int: {here}" in text
    assert "- Linux 1.2.3-stock, holds: N = 2." in text
    assert "- Linux 4.5.6-other, open: N = 2. Not run." in text
    assert f"| wsc-sysenter: {published()['wsc-sysenter'].claim} | does not hold | does not" in text
    assert "wsc-sysenter is judged" not in text


def test_a_claim_that_was_not_run_on_a_kernel_has_no_verdict_there(two):
    _, other = two
    result = result_file.load(other / "made-up")
    absent = (replace(result.claims[0], holds=None, ours=NOT_RUN), *result.claims[1:2])
    result_file.save(replace(result, claims=absent), other / "made-up")
    text = kernel_comparison.document([report_files.read(each, Silent()) for each in two])
    assert f"{published()['wsc-int'].claim} | holds | – |" in text
    assert f"{published()['psc-best'].claim} | open | – |" in text
    assert "No claim is judged differently on two kernels." in text


def test_claims_of_related_works_with_the_same_verdicts_share_a_row(two):
    for folder in two:
        result = result_file.load(folder / "made-up")
        related = tuple(undecided(name, "2%", "No clock.") for name in RELATED)
        result_file.save(replace(result, claims=(*result.claims, *related)), folder / "made-up")
    text = kernel_comparison.document([report_files.read(each, Silent()) for each in two])
    assert f"| Of related works: {', '.join(RELATED)} | open | open |" in text


def test_what_all_related_works_share_is_said_once_above_them(chosen):
    result = result_file.load(chosen / "made-up")
    related = tuple(
        undecided(name, "2%", f"No clock decides it.{words}")
        for name, words in zip(RELATED, ("", " Another one stands in."), strict=True)
    )
    result_file.save(replace(result, claims=(*result.claims, *related)), chosen / "made-up")
    text = saved_page.document(report_files.read(chosen, Silent()), chosen.parent)
    assert text.count("No clock decides it.") == 1 and text.count("Another one stands in.") == 1
    assert text.index("No clock decides it.") < text.index("**Related works, by servers: kml, any")


def test_results_of_one_kernel_are_told_apart_by_their_folders(two):
    first, other = (report_files.read(folder, Silent()) for folder in two)
    result = replace(other.sections[0].result, kernel="1.2.3-stock")
    again = replace(other, sections=(replace(other.sections[0], result=result),))
    text = kernel_comparison.document([first, again])
    assert f"| call | 1.2.3-stock ({two[0]}) | 1.2.3-stock ({two[1]}) |" in text
    both = replace(again, sections=(*again.sections, *other.sections))
    text = kernel_comparison.document([first, both])
    names = f"1.2.3-stock ({two[0]}) | 1.2.3-stock, 4.5.6-other ({two[1]})"
    assert f"| call | {names} |" in text


def test_equal_results_differ_in_nothing(chosen):
    read = report_files.read(chosen, Silent())
    text = kernel_comparison.document([read, read])
    assert "0 differ by more than" in text
    assert "No claim is judged differently on two kernels." in text


def test_kernels_of_other_processors_are_compared_among_themselves(two):
    first, other = (report_files.read(folder, Silent()) for folder in two)
    section = replace(first.sections[0], meta={"architecture": "arm64"})
    foreign = replace(first, sections=(section,))
    assert foreign.processor == "arm64"
    groups = kernel_comparison.by_processor([first, foreign, other, foreign])
    assert groups == [[first, other], [foreign, foreign]]
    kernel_comparison.write([first, foreign, other])
    text = (first.directory / kernel_comparison.NAME).read_text()
    assert "| call | 1.2.3-stock | 4.5.6-other |" in text


def test_readme_names_the_kernel_and_the_claims_that_others_judge_otherwise(two):
    first, other = (report_files.read(folder, Silent()) for folder in two)
    origin = first.directory.parent
    assert "**Claims on Linux 1.2**. " in readme.generated(first, origin, [other])
    kernel_comparison.write([first, other])
    link = f"[4.5]({first.directory.name}/{kernel_comparison.NAME})"
    said = f"**Claims on Linux 1.2** (judged otherwise on {link}: "
    differ = first.sections[0].result.claims[0].id
    assert f"{said}{differ}). " in readme.generated(first, origin, [other])
    result = replace(first.sections[0].result, kernel="4.5.6-other")
    same = replace(first, sections=(replace(first.sections[0], result=result),))
    assert f"{said}none). " in readme.generated(first, origin, [same])


@pytest.mark.slow
def test_the_command_writes_it_beside_the_first_results(two):
    folder, other = two
    command = ["report", str(folder), "--compare", str(other)]
    done = CliRunner().invoke(cli.cli, command)
    assert done.exit_code == 0, done.output
    assert "4.5.6-other" in (folder / kernel_comparison.NAME).read_text()
    assert done.output.endswith(
        f"\nWhat differs, and why: {folder / kernel_comparison.NAME}; of 3 claims 1 is judged "
        "differently: wsc-int\n"
    )
    assert not (other / kernel_comparison.NAME).exists()
    assert f"({folder.name}/{kernel_comparison.NAME})" in readme.generated(
        report_files.read(folder, Silent()), folder.parent
    )


def test_the_page_of_published_results_has_what_a_reader_asks(chosen):
    text = saved_page.document(report_files.read(chosen, Silent()), chosen.parent)
    assert f"bin/trapless report {chosen.name} " in text
    assert "| getpid | " not in text and "| getppid | 347 | 151 |" in text
    assert "| does not hold | wsc-sysenter: Fig. 11: " in text
    assert " | N = 32 | N = 3<details><summary>why</summary>It holds if N = 32." in text
    assert "## made-up" in text and "`trapless evaluate made-up`" in text


def test_a_change_of_any_metric_shows_on_the_page(chosen):
    before = saved_page.document(report_files.read(chosen, Silent()), chosen.parent)
    result = result_file.load(chosen / "made-up")
    hidden = {**result.metrics, "a.b.c.ratio": Metric(1.0, "ratio", "measured")}
    result_file.save(replace(result, metrics=hidden), chosen / "made-up")
    one = saved_page.document(report_files.read(chosen, Silent()), chosen.parent)
    hidden["a.b.c.ratio"] = Metric(2.0, "ratio", "measured")
    result_file.save(replace(result, metrics=hidden), chosen / "made-up")
    other = saved_page.document(report_files.read(chosen, Silent()), chosen.parent)
    assert len({before, one, other}) == 3


def test_a_folder_without_results_is_named(chosen, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    done = CliRunner().invoke(cli.cli, ["report", str(chosen), "--compare", str(empty)])
    assert str(empty) in str(done.exception)
    assert not (chosen / kernel_comparison.NAME).exists()


@pytest.mark.parametrize("other", ["--pack", "--verify"])
def test_kernels_are_compared_in_a_report_alone(other, tmp_path):
    archive = tmp_path / "a.tar.xz"
    archive.touch()
    folder = [] if other == "--verify" else [str(tmp_path)]
    words = ["report", *folder, other, str(archive), "--compare", str(tmp_path)]
    done = CliRunner().invoke(cli.cli, words)
    assert done.exit_code == 2 and other in done.output
