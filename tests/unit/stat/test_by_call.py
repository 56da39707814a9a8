# SPDX-License-Identifier: GPL-2.0-only
"""`trapless stat --calls`: from rows of the model, and from a saved run, to the table of calls."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from trapless.base.console import TraplessError
from trapless.calls import CallClass
from trapless.cli import cli
from trapless.stat import by_call, costs, labels, run_counts, run_report, stat_text
from trapless.stat.by_call import ByCall
from trapless.stat.run_counts import RunCounts

DATA = Path(__file__).parents[2] / "data" / "stat" / "calls.json.xz"
"""`trapless stat --lab --calls --json` of sqlite3 with a table in memory."""
READ, FUTEX, EXECVE = 0, 202, 59
COLUMNS = (
    "user.instructions",
    "kernel.instructions",
    "kernel.before_user",
    *(f"crossings.{kind}" for kind in (*run_counts.CROSSINGS, "to_kernel")),
)


@pytest.fixture(scope="module")
def saved():
    return json.loads(lzma.decompress(DATA.read_bytes()))


@pytest.fixture
def found(saved):
    return RunCounts.of_json(saved["counted"])


# ---- Rows ---------------------------------------------------------------------------------------


def label(part, call, group=labels.PROGRAM, junk=0):
    """As regions.c writes it; what it wrote before stands above."""
    return junk << 28 | call << labels.CALL_SHIFT | part << labels.PART_SHIFT | group


def rows_of(path, rows):
    """A file of the model with these rows: label, then instructions in user mode, of the kernel,
    and those of it before user mode."""
    header = {"format": "trapless-model", "version": 1, "columns": COLUMNS}
    lines = [json.dumps(header)]
    facts = {labels.FACT_LEFT_RUNNING: 0, labels.FACT_WORKED: 0, labels.FACT_REFUSALS: 0}
    every = [*rows, *((fact << 4 | labels.FACT, 0, 0, 0) for fact in facts)]
    every.append((labels.FACT_STATUS << 4 | labels.FACT, 0, 0, 0))
    for number, (region, *counts) in enumerate(every):
        row = {"region": region, "number": number, "counts": [*counts, *[0] * (len(COLUMNS) - 3)]}
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n")
    return run_counts.read(path, "6.1", (), told_apart=True)


def test_regions_of_calls_are_added_up_by_call(tmp_path):
    run = rows_of(
        tmp_path / "rows",
        [
            (label(labels.PART_NONE, 0), 5, 50, 50),
            (label(labels.PART_ENTERED, READ, junk=0xABCD), 0, 700, 700),  # sleeps
            (label(labels.PART_SLEPT_OUT, READ), 0, 0, 0),
            (label(labels.PART_NONE, 0, group=labels.OTHER), 9, 90, 9),
            (label(labels.PART_RESUMED, READ), 40, 330, 300),
            (label(labels.PART_ENTERED, FUTEX), 0, 100, 100),
            (label(labels.PART_FAILED, FUTEX), 0, 0, 0),
            (label(labels.PART_RESUMED, FUTEX), 3, 45, 15),
            (label(labels.PART_ENTERED, READ), 2, 200, 170),
        ],
    )
    read, futex = run.calls_made
    assert (read.nr, read.number, read.user, read.kernel, read.inside) == (READ, 2, 42, 1230, 1170)
    assert (read.slept_out, read.failed) == (1, 0)
    assert (futex.nr, futex.number, futex.inside, futex.failed) == (FUTEX, 1, 115, 1)
    # All regions of the program are its counts, as where calls are not told apart.
    assert (run.row["user.instructions"], run.row["kernel.instructions"]) == (50, 1425)
    assert run.rows["others"]["kernel.instructions"] == 90
    assert RunCounts.of_json(json.loads(json.dumps(run.as_json()))) == run


def test_a_run_without_calls_told_apart_says_nothing_of_them(found):
    plain = replace(found, calls_made=(), traced=None)
    assert "calls_made" not in plain.as_json()
    assert ByCall(plain).calls == () and "calls" not in run_report.Report(plain).as_json()


# ---- A saved run ------------------------------------------------------------------------------


def test_a_report_is_a_function_of_what_was_counted(saved, found):
    assert json.loads(json.dumps(run_report.Report(found).as_json())) == saved


def test_every_call_is_in_one_row_and_the_sums_are_the_programs(found):
    calls = ByCall(found)
    assert calls.number == found.row.crossings()["syscall"]
    paid = calls.number * sum_of_price(found)
    assert calls.kernel + paid == pytest.approx(found.row["kernel.instructions"], rel=0.001)


def sum_of_price(found):
    """What it costs to tell one call apart: the traced loop beside the plain one."""
    plain, nothing = (found.loops[one]["trap"].features["kernel"] for one in ("calls", "nothing"))
    return found.traced.kernel / found.traced.number - (plain - nothing) / labels.OPERATIONS


def test_the_price_of_telling_apart_is_known_and_taken_off(found):
    assert 50 < sum_of_price(found) < 500
    dearer = replace(found, traced=replace(found.traced, inside=found.traced.inside + 64 * 10))
    for one, other in zip(by_name(found).values(), by_name(dearer).values(), strict=True):
        assert one.kernel - other.kernel == pytest.approx(10 * one.number)


def by_name(run):
    return {one.name: one for one in sorted(ByCall(run).calls, key=lambda one: one.name)}


def test_what_supervisor_mode_takes_away_adds_up_to_the_prediction(found):
    """Without what happens outside of calls: processes, and interrupts in user mode."""
    terms = {term.name: term.saved for term in costs.supervisor_terms(found)}
    whole = costs.supervisor_saving(found)
    outside = ("demoting", "demoted", "worked", "forks", "execs", "signals")
    in_calls = sum(part for name, part in whole.parts.items() if name not in outside)
    handed = sum(one.number for one in ByCall(found).calls if one.name in by_call.HANDED)
    calls = ByCall(found).calls
    # Interrupts in the kernel outside of calls are in the prediction alone.
    apart = costs.of_run(found)["in_kernel"] - sum(one.in_kernel for one in found.calls_made)
    total = sum(one.supervisor for one in calls) - handed * terms["signals"]
    assert total == pytest.approx(in_calls - apart * terms["in_kernel"])


def test_calls_say_which_mechanism_may_make_them(found):
    names = by_name(found)
    assert names["read"].wrapped is CallClass.ANY and names["read"].worker == names["read"].kernel
    assert names["arch_prctl"].wrapped is CallClass.BATCH_ONLY
    assert names["arch_prctl"].batches and names["arch_prctl"].worker is None
    assert names["execve"].wrapped is CallClass.REFUSED
    assert names["execve"].batches is None and names["execve"].supervisor < 0


def test_the_call_that_would_gain_most_comes_first(found):
    gains = [one.gain for one in ByCall(found).calls]
    assert gains == sorted(gains, reverse=True) and gains[0] > gains[-1]


def test_a_call_without_a_row_in_the_table_is_shown_by_its_number(found):
    strange = replace(found.calls_made[0], nr=999)
    unknown = replace(found.calls_made[0], nr=labels.CALL_UNKNOWN)
    run = replace(found, calls_made=(strange, unknown))
    assert {one.name for one in ByCall(run).calls} == {"call 999", "(32-bit or unknown)"}
    assert all(one.wrapped is None and one.batches is None for one in ByCall(run).calls)


def entering(run, kind, number):
    """The run with so many more entries of that kind."""
    counts = list(run.program)
    counts[run.columns.index(f"crossings.{kind}")] += number
    return replace(run, program=tuple(counts))


def saving(run, nr):
    return next(ByCall(run)._supervisor(one, None) for one in run.calls_made if one.nr == nr)


@pytest.mark.parametrize("kind", ["int", "sysenter"])
def test_calls_by_another_way_than_syscall_save_nothing_in_supervisor_mode(found, kind):
    terms = {term.name: term.saved for term in costs.supervisor_terms(found)}
    call = run_counts.CallCounts(labels.CALL_UNKNOWN, 1007, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    run = replace(entering(entering(found, kind, 1000), "syscall", 7), calls_made=(call,))
    assert run.gates == 1000
    by_syscall = 7 * (terms["calls"] + terms["signals"])
    assert saving(run, labels.CALL_UNKNOWN) == pytest.approx(1000 * terms["demoted"] + by_syscall)
    assert saving(run, labels.CALL_UNKNOWN) < 0
    before, after = (costs.supervisor_saving(one) for one in (found, entering(found, kind, 1000)))
    assert after.instructions - before.instructions == pytest.approx(1000 * terms["demoted"])
    assert after.crossings == before.crossings
    batches = [costs.batch_saving(one) for one in (found, entering(found, kind, 1000))]
    assert batches[0].instructions == batches[1].instructions


def test_numbers_that_no_call_has_save_nothing_in_any_mechanism(found):
    terms = {term.name: term.saved for term in costs.supervisor_terms(found)}
    call = run_counts.CallCounts(4000, 1000, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    run = replace(entering(found, "syscall", 1000), numberless=1000, calls_made=(call,))
    handed = 1000 * (terms["calls"] + terms["signals"])
    assert saving(run, 4000) == pytest.approx(handed) and handed < 0
    before, after = (costs.supervisor_saving(one) for one in (found, run))
    assert after.instructions - before.instructions == pytest.approx(handed)
    assert after.crossings == before.crossings
    assert costs.batch_saving(run) == costs.batch_saving(found)
    assert RunCounts.of_json(json.loads(json.dumps(run.as_json()))) == run


# ---- What is shown ------------------------------------------------------------------------------


def shown(run, hidden=()):
    return "\n".join(stat_text.call_lines(run_report.Report(run), ["sqlite3"], hidden))


def test_the_table_has_a_row_for_each_call_and_the_sums(found):
    lines = shown(found).splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("call "))
    end = start + lines[start:].index("")
    units, _, numbers = lines[start - 1].partition(": instructions; ")
    named = [*units.split(", "), *numbers.removesuffix(": how often").split(", ")]
    assert all(name in lines[start] for name in named) and len(named) == 7
    assert lines[end - 1].startswith("all ") and lines[end - 2].startswith("no call ")
    names = [line.split()[0] for line in lines[start + 1 : end - 2]]
    assert names == [one.name for one in ByCall(found).calls]
    assert max(map(len, lines)) <= stat_text.WIDTH + 10


def test_calls_that_are_not_asked_for_are_only_counted(found):
    hidden = [one.name for one in ByCall(found).calls if one.name != "read"]
    table = shown(found, hidden)
    assert f"\n{len(hidden)} that are not shown" in table and "\nread " in table
    assert "\nmmap " not in table


def test_files_of_this_machine_are_said_first(found):
    """With the calls that asked for them; a few requests among many calls are not worth a word."""
    calls = tuple(
        replace(one, shared=30 if one.nr == READ else 0, number=one.number + 30)
        for one in found.calls_made
    )
    run = replace(found, calls_made=calls, events={**found.events, "shared": 90})
    before, _, _ = shown(run).partition("\ncall ")
    words = " ".join(before.split())
    assert "asked this machine for files 90 times" in words and "in 30 calls (read 30)" in words
    assert "--prepare 'cp -r FOLDER /tmp'" in words
    few = replace(found, events={**found.events, "shared": 0})
    assert "this machine" not in shown(few)


def test_work_of_a_first_run_is_said_first(found):
    cold = replace(found, warm=0, events={**found.events, "file_faults": 7})
    before, _, _ = shown(cold).partition("\ncall ")
    assert "7 of its page faults read from a file" in before and "had not run before" in before
    assert "had not run before" not in shown(found)


# ---- Options ------------------------------------------------------------------------------------

NAMES = ("read", "readv", "write", "futex", "epoll_wait", "epoll_ctl")


@pytest.mark.parametrize(
    ("filters", "chosen"),
    [
        ([], NAMES),
        (["trace=read,write"], ("read", "write")),
        (["epoll_*"], ("epoll_wait", "epoll_ctl")),
        (["!futex"], tuple(name for name in NAMES if name != "futex")),
        (["trace=!futex,read*"], ("write", "epoll_wait", "epoll_ctl")),
        (["trace!=futex"], tuple(name for name in NAMES if name != "futex")),
        (["trace=all"], NAMES),
        (["trace=none"], ()),
        (["read", "write"], ("write",)),
        (["%desc"], ("read", "readv", "write", "epoll_wait", "epoll_ctl")),
        (["!%desc"], ("futex",)),
        (["trace=%net,futex"], ("futex",)),
        (["/^(read|epoll)"], ("read", "readv", "epoll_wait", "epoll_ctl")),
        (["?uselib,write"], ("write",)),
        (["?%desc"], ("read", "readv", "write", "epoll_wait", "epoll_ctl")),
        (["?/^epoll_w,?/none"], ("epoll_wait",)),
        (["t=network,0,write@64"], ("read", "write")),
        (["!!read"], ("read",)),
    ],
)
def test_filters_are_those_of_strace(filters, chosen):
    assert by_call.choose(filters, NAMES) == set(chosen)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("trace=raed", "did you mean 'read'?"),
        ("trace=%files", "there is no such set; there are %file, %desc, "),
        ("/(", "no regular expression: "),
        ("/a{99999999999}", "no regular expression: "),
        ("/" + "(" * 3000, "no regular expression: "),
        ("/[[:alpha:]]", "write [a-z]"),
        ("/READ", "no system call of that name"),
        ("99999", "no system call of that name"),
        ("", "it names no system call"),
        ("trace=", "it names no system call"),
        ("!", "it names no system call"),
        (",", "it names no system call"),
        ("xyz", "no system call of that name"),
    ],
)
def test_a_filter_that_means_no_call_is_an_error(pattern, message):
    with pytest.raises(TraplessError) as error:
        by_call.choose([pattern], NAMES)
    assert message in str(error.value) and error.value.status == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--calls", "--", "ls"], "--calls is about a VM: add --lab"),
        (["-e", "read", "--", "ls"], "-e is about a VM: add --lab"),
        (["--lab", "-e", "read", "--", "ls"], "add --calls"),
        (["--lab", "--calls", "--compare", "supervisor", "--", "ls"], "one at a time"),
        (["--lab", "--calls", "--processor", "core-i7-9700k", "--", "ls"], "leave out --processor"),
    ],
)
def test_wrong_usage_is_named(words, message):
    result = CliRunner().invoke(cli, ["stat", *words])
    assert result.exit_code == 2 and message in result.output


# ---- Names of directories -----------------------------------------------------------------------


def asking(found, names, stats, loop):
    events = {**found.events, "names": names, "name_stats": stats}
    return run_report.Report(replace(found, events=events, scan_loop=loop))


LOOP = {"getdents64": 64 * 300, "statx": 64 * 2800, "scandir": 64 * 1600}


def test_a_compound_call_saves_what_is_asked_about_and_costs_what_is_read(found):
    every, few = (asking(found, 1000, stats, LOOP).by_call.scan for stats in (1000, 100))
    added = ByCall(found).added
    assert every.saved == pytest.approx(1000 * (2800 + added) - 1000 * 1300)
    assert few.saved == pytest.approx(100 * (2800 + added) - 1000 * 1300)
    assert few.saved < 0 < every.saved


@pytest.mark.parametrize(
    ("stats", "loop", "words"),
    [
        (1000, LOOP, "would take away"),
        (100, LOOP, "would add"),
        (1000, {}, "is not offered on this kernel"),
        (5, LOOP, None),
    ],
)
def test_the_report_says_what_a_compound_call_would_do(found, stats, loop, words):
    text = " ".join(stat_text.call_lines(asking(found, 1000, stats, loop), ["du"], ()))
    assert ("TL_NR_SCANDIR" in text) == (words is not None)
    assert ("run stat without --calls" in " ".join(text.split())) == (words is not None)
    assert words is None or words in " ".join(text.split())


def test_counts_of_names_are_saved(found):
    run = asking(found, 20, 10, LOOP).counts
    assert RunCounts.of_json(json.loads(json.dumps(run.as_json()))) == run
