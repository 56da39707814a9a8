# SPDX-License-Identifier: GPL-2.0-only
"""Experiments mode-switch and ls read from real raw data, those of the published results.

Expected figures are computed here from the rows by other means. Where a kernel refuses supervisor
mode, rows are taken away as that kernel would not have printed them.
"""

from __future__ import annotations

import json
import shutil
import statistics
from pathlib import Path

import pytest

from eval.ls import part_commands as ls_commands
from eval.mode_switch import modelled_clocks
from eval.mode_switch import part_calls as calls
from eval.mode_switch import part_steps as call_steps
from eval.tools.crossings import crossings
from eval.tools.steps import steps
from trapless.base.console import TraplessError
from trapless.experiments import experiment
from trapless.experiments.raw_files import read_rows
from trapless.model import processors

DATA = Path(__file__).parents[3] / "docs/results/6.1"
SWITCH, LS = DATA / "mode-switch", DATA / "ls"


def rows_of(folder, **wanted):
    return [
        row
        for row in read_rows(folder / "raw.jsonl")
        if all(row.get(key) == value for key, value in wanted.items())
    ]


@pytest.fixture
def without(tmp_path):
    """Saved raw data less the rows that a function names, plus others."""

    def rewrite(source, lost, more=()):
        folder = tmp_path / source.name
        folder.mkdir()
        shutil.copy(source / "meta.json.xz", folder)
        rows = [row for row in rows_of(source) if not lost(row)] + list(more)
        (folder / "raw.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return folder

    return rewrite


@pytest.fixture(scope="module")
def switch():
    return experiment.analyse("mode-switch", SWITCH)


@pytest.fixture(scope="module")
def ls():
    return experiment.analyse("ls", LS)


@pytest.mark.parametrize("mechanism", ["trap", "trap-present", "supervisor"])
@pytest.mark.parametrize(("call", "form"), [("getpid", "bare"), ("read", "static")])
def test_a_call_costs_its_loop_less_the_empty_one(switch, mechanism, call, form):
    run = rows_of(SWITCH, kind="counted", call=call, form=form, mechanism=mechanism)
    empty = rows_of(
        SWITCH, kind="counted", call="empty", form=form, mechanism=mechanism, ops=run[0]["ops"]
    )
    least = min(row["value"] for row in run) - min(row["value"] for row in empty)
    metric = switch.metrics[f"{call}.{mechanism}.{form}.instructions"]
    assert metric.value == pytest.approx(least / run[0]["ops"], abs=0.01)
    assert metric.n == len(run) >= 3


def test_calls_that_touch_no_file_repeat_exactly(switch):
    metrics = [
        metric
        for name, metric in switch.metrics.items()
        if name.startswith(("nosys.", "getpid.")) and name.endswith(".instructions")
    ]
    assert len(metrics) >= 15
    assert {metric.spread for metric in metrics} == {0}


@pytest.mark.parametrize("call", ["nosys", "getpid", "getppid"])
@pytest.mark.parametrize("mechanism", ["trap", "supervisor"])
def test_single_steps_and_the_counter_say_the_same(switch, call, mechanism):
    """The program's `syscall` is in the counter's figure, and with the program's in the steps."""
    rows = [row for row in rows_of(SWITCH) if row.get("steps") == f"{call}.{mechanism}"]
    outside = sum(row["count"] for row in rows if row["of"] != steps.PROGRAM)
    assert switch.metrics[f"{call}.{mechanism}.bare.instructions"].value == outside + 1


def test_counted_runs_in_supervisor_mode_never_left_it():
    rows = rows_of(SWITCH, part="calls", kind="counted", mechanism="supervisor")
    assert len(rows) > 50
    assert {(row["begun_user"], row["ended_user"]) for row in rows} == {(0, 0)}
    rows = rows_of(SWITCH, part="calls", mechanism="trap-back")
    assert all(row["begun_user"] == row["ended_user"] == row["ops"] for row in rows)


def test_what_it_set_out_to_reach_is_reached(switch):
    metrics = switch.metrics
    assert metrics["getpid.supervisor.bare.instruction-ratio"].value <= 0.38
    saved = [m.value for name, m in metrics.items() if name.endswith(".saved-instructions")]
    assert len(saved) >= 15
    assert min(saved) >= 190
    assert metrics["nosys.supervisor.module.steps"].value <= 45
    present = [m.value for n, m in metrics.items() if ".trap-present." in n and "ratio" in n]
    assert max(present) <= 1.02


def test_measured_ratios_pair_rounds(switch):
    wanted = {"kind": "measured", "call": "getpid", "form": "static"}
    inside = {r["repeat"]: r["value"] for r in rows_of(SWITCH, mechanism="supervisor", **wanted)}
    trap = {r["repeat"]: r["value"] for r in rows_of(SWITCH, mechanism="trap-back", **wanted)}
    metric = switch.metrics["getpid.supervisor.static.ratio"]
    assert metric.value == pytest.approx(
        statistics.median(inside[k] / trap[k] for k in trap), abs=1e-4
    )
    assert (metric.kind, metric.n) == ("measured", len(trap))


def test_a_trap_changes_the_mode_twice_and_supervisor_mode_almost_never(switch):
    assert switch.metrics["getpid.trap-back.counted.transitions"].value == 2
    assert switch.metrics["getpid.supervisor.counted.transitions"].value < 0.001


def test_modelled_ratios_are_of_the_counts(switch):
    case = processors.with_traps()["pentium-4"].cases[0]
    inside = switch.metrics["getpid.supervisor.static.instructions"].value
    metric = switch.metrics["getpid.supervisor.pentium-4_int_cpi200.clock-ratio"]
    low, high = (2 * inside / (2 * inside + saved) for saved in (900, 800))
    assert (case.saved.low, case.saved.high) == (800, 900)
    assert metric.kind == "modelled"
    assert metric.value == pytest.approx((low + high) / 2, abs=1e-3)


def test_no_clocks_are_modelled_that_contradict_what_was_published(switch):
    """A published call of 120 clocks cannot take half a clock for each of its 322 instructions."""
    names = [name for name in switch.metrics if "xeon-gold-6161_nopti_" in name]
    assert any("_cpi020." in name for name in names)
    assert not any("_cpi050." in name for name in names)


def test_a_kernel_that_refuses_supervisor_mode_leaves_the_claims_open(without):
    def lost(row):
        return (
            row.get("mechanism", "trap") != "trap"
            or "switch" in row
            or "delay" in row
            or row.get("events", "trap") != "trap"
            or str(row.get("steps", "trap")).endswith("supervisor")
        )

    folder = without(SWITCH, lost)
    result = experiment.analyse("mode-switch", folder)
    verdicts = {claim.id: claim.holds for claim in result.claims}
    assert verdicts.pop("dms-static") is True
    assert set(verdicts.values()) == {None}
    assert experiment.figures("mode-switch", folder)


@pytest.mark.parametrize(("late", "holds"), [(1, True), (2, False)])
def test_a_switch_may_be_one_call_late(without, late, holds):
    more = {"part": "calls", "boot": "calls-measured", "target": "running", "to": "user"}
    folder = without(SWITCH, lambda row: False, [more | {"delay": late, "switches": 1}])
    claim = next(c for c in experiment.analyse("mode-switch", folder).claims if c.id == "dms-delay")
    assert claim.holds is holds
    assert f"began {late} more call" in claim.ours


def test_repeats_that_differ_end_the_experiment():
    rows = rows_of(SWITCH, kind="counted", call="getpid", boot="calls-counted-absent-static")
    calls.check(rows)
    with pytest.raises(TraplessError, match="getpid"):
        calls.check([*rows, {**rows[-1], "value": 1}])


def test_functions_are_named_by_the_closest_symbol_below():
    lines = [
        "ffffffff81000010 T do_it", "ffffffffc0000000 t of_module\t[trapless]",
        "ffffffff81000040 D a_datum", "not a symbol",
    ]  # fmt: skip
    symbols = steps.Symbols.of(steps.kernel_symbols(lines))
    assert symbols.name(0xFFFFFFFF81000050) == ("do_it", "kernel")
    assert symbols.name(0xFFFFFFFFC0000004) == ("of_module", "trapless")
    with pytest.raises(TraplessError, match="no function"):
        symbols.name(0x1000)


def test_a_piece_that_went_the_wrong_way_is_refused():
    row = {"function": steps.KERNEL_ENTRY, "of": "kernel", "count": 1}
    steps.check([{**row, "steps": "getpid.trap"}])
    with pytest.raises(TraplessError, match="went through the kernel's own entry"):
        steps.check([{**row, "steps": "getpid.supervisor"}])
    with pytest.raises(TraplessError, match="not through"):
        steps.check([{**row, "function": "other", "steps": "getpid.trap"}])


def test_every_instruction_of_a_piece_is_in_one_group():
    module = call_steps
    rows = [row for row in rows_of(SWITCH) if "steps" in row]
    for piece, groups in module.sums(rows).items():
        assert sum(groups.values()) == steps.total(rows, piece)
        inside = piece.endswith(".supervisor")
        assert ("entry and exit of the trap" in groups) != inside


def test_both_modes_of_ls_print_the_same():
    checks = [row for row in rows_of(LS) if "prints the same" in row.get("check", "")]
    assert len(checks) == 3 * 6
    lines = {row["check"].split()[0]: row["lines"] for row in checks}
    assert lines["ls5-coreutils"] == lines["ls5-busybox"] == 5
    assert lines["ls408-coreutils"] == 408
    assert lines["ls-lr-coreutils"] > 2000


@pytest.mark.parametrize("program", ["coreutils", "busybox"])
def test_ls_executes_fewer_instructions_and_its_calls_stay(ls, program):
    metrics = ls.metrics
    for work in ("ls408", "ls-lr"):
        assert metrics[f"{work}.supervisor.{program}.unzeroed-instruction-ratio"].value < 1
    assert metrics[f"ls-lr.supervisor.{program}.share"].value > 0.95
    trap = metrics[f"ls-lr.trap.{program}.crossings"].value
    assert metrics[f"ls-lr.supervisor.{program}.crossings"].value < trap / 100


def test_ls_on_a_kernel_that_refuses_leaves_its_claims_open(without):
    folder = without(LS, lambda row: row.get("mechanism") == "supervisor")
    result = experiment.analyse("ls", folder)
    assert {claim.holds for claim in result.claims} == {None}
    assert experiment.figures("ls", folder)


def test_counts_of_ls_that_do_not_fit_end_the_experiment():
    commands = ls_commands
    rows = rows_of(LS, boot="commands-counted")
    commands.check(rows)
    row = next(r for r in rows if r.get("stayed"))
    row["stayed"] += 100
    with pytest.raises(TraplessError, match=row["call"]):
        commands.check(rows)


def test_a_command_in_both_modes_is_one_line_for_the_guest():
    command = crossings.Command("ls5", "", ("/bin/ls", "/a b"), "/out/ls5")
    line = crossings.shell_line(command, 3, modes=("trap", "supervisor"), kind="measured")
    assert "--mechanism" not in line
    assert "--modes trap,supervisor --kind measured" in line
    assert line.endswith("-- /bin/ls '/a b'")


def test_a_cell_of_the_modelled_table_holds_both_ends():
    ends = modelled_clocks.ends
    assert ends([0.2, 0.35, 0.5], "g") == "0.2 to 0.5"
    assert ends([850.0, 850.0], ",.0f") == "850"


def test_a_count_that_never_comes_again_is_none():
    rows = [row for row in rows_of(SWITCH, kind="counted") if row.get("call") == "getpid"]
    assert len(rows) > 1
    calls.check(rows)
    rows[0]["value"] += 2861  # by a timer; the others are as they were
    calls.check(rows)
    rows[0]["value"] -= 2862
    with pytest.raises(TraplessError, match="counted"):
        calls.check(rows)
