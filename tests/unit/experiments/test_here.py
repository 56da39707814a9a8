# SPDX-License-Identifier: GPL-2.0-only
"""Experiments on a machine's own kernel: what is said and asked first, what is left out, how the
kernel's log is read, and what clocks decide. The whole runs in tests/lab/experiments."""

from __future__ import annotations

import dataclasses
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.notes import Notes
from trapless import module
from trapless.base.console import Silent, TraplessError
from trapless.cli import cli
from trapless.experiments import evaluate, experiment, fit, open_claims, timed_rows
from trapless.experiments.collection import Collection, Extent, LeftOutError, make_meta
from trapless.experiments.here import consent, kernel_log, own_machine, own_run, place, root
from trapless.report.document import Report, Section
from trapless.results import claims, result_file
from trapless.results.result_file import Metric, Result
from trapless.vm.lab import LabConfig

ROOT = Path(__file__).parents[3]
ROW = {"calibration": "tsc", "overhead": 30, "clocks_per_ns": 2.5, "hypervisor": ""}
EMULATED = {**ROW, "hypervisor": "TCGTCGTCGTCG"}


def typed(*words: str):
    return CliRunner().invoke(cli, ["evaluate", *words], standalone_mode=False)


def test_an_experiment_that_needs_the_lab_is_left_out_by_name_with_its_reason():
    specs, absent = own_machine.chosen(())
    assert {spec.name for spec in specs} | absent.keys() == set(experiment.names())
    assert {"batch-size", "ls", "memory-hierarchy", "mode-switch", "parallel", "programs"} <= {
        spec.name for spec in specs
    }
    assert absent == {name: experiment.get(name).needs for name in absent}
    with pytest.raises(TraplessError, match="os-behaviour: ") as error:
        own_machine.chosen(("os-behaviour",))
    assert error.value.status == 2


def test_each_has_its_own_method_and_the_same_question():
    for name in experiment.names():
        spec = experiment.get_here(name)
        if spec is not None:
            lab = experiment.get(name)
            assert (spec.question, spec.paper) == (lab.question, lab.paper)
            assert spec.method != lab.method
            assert spec.minutes < lab.minutes


BARE = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing}:
            raise ModuleNotFoundError(name, name=name.split(".")[0])
sys.meta_path.insert(0, Missing())
from trapless.experiments.here import own_machine, own_run
print(*(spec.name for spec in own_machine.chosen(())[0]))
"""
"""A Python as a bare machine may have it: click, rich, elftools; nothing for arrays or figures."""


@pytest.mark.slow
def test_it_takes_no_package_that_a_bare_machine_may_lack():
    missing = {"numpy", "pyarrow", "matplotlib", "jinja2", "drgn", "dask", "distributed"}
    code = BARE.replace("{missing}", repr(missing))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split() == [one.name for one in own_machine.chosen(())[0]], done


def words_of(**changes) -> str:
    specs, absent = own_machine.chosen(())
    options = {"module": Path("/m/trapless.ko"), "supervisor": True, "out": Path("out")}
    return consent.text(specs, absent, quick=True, **{**options, **changes})


def test_what_is_loaded_given_up_and_written_is_said():
    words = words_of()
    for part in ("/m/trapless.ko", os.uname().release, "SMEP and SMAP are off", "brd, ext4"):
        assert part in words
    assert "It writes results into out" in words
    assert "page-table isolation (PTI)" in words
    assert max(map(len, words.splitlines())) <= 120
    assert "SMEP" not in words_of(supervisor=False)


def test_each_that_switches_the_mode_is_named_before():
    with_consent = {
        name
        for name in experiment.names()
        if (own := experiment.get_here(name))
        for part in own.parts
        if place.CONSENT
        in (ROOT / f"eval/{name.replace('-', '_')}/part_{part.name}.py").read_text()
    }
    assert with_consent == set(consent.SWITCHING)


def test_nobody_is_asked_without_a_terminal(capsys):
    with pytest.raises(TraplessError, match="--yes") as error:
        consent.ask("words", agreed=False)
    assert error.value.status == 2
    consent.ask("words", agreed=True)
    assert capsys.readouterr().err == "words\nwords\n"


def test_it_begins_only_as_root_and_without_a_module_that_is_there(monkeypatch, tmp_path):
    wishes = own_run.Wishes((), True, tmp_path, None, True, agreed=True, reported=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(TraplessError, match="needs root"):
        own_run.run(wishes, Silent())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / "sys/module/trapless").mkdir(parents=True)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    with pytest.raises(TraplessError, match="trapless module unload"):
        own_run.run(wishes, Silent())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\0license=GPL\0vermagic=0.1-other SMP\0", "built for kernel 0.1-other, and this is"),
        (b"hello", "is no kernel module"),
        (None, "No such file"),
    ],
)
def test_a_module_that_does_not_fit_is_refused_first(content, reason, tmp_path):
    path = tmp_path / "trapless.ko"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TraplessError, match=reason) as error:
        module.check_release(path)
    assert error.value.status == 2
    path.write_bytes(f"\0vermagic={os.uname().release} SMP\0".encode())
    module.check_release(path)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (("--here", "--kernel", "6.1"), "--kernel is about VMs"),
        (("--here", "--jobs", "2"), "--jobs is about VMs"),
        (("--yes",), "--yes is about this machine's own kernel"),
        (("--no-supervisor",), "add --here"),
        (("--least",), "add --here"),
    ],
)
def test_options_of_the_other_kind_of_run_are_wrong_usage(words, wrong):
    assert wrong in str(typed(*words).exception)


def test_devices_that_may_be_somebodys_are_left_alone(monkeypatch, tmp_path):
    (tmp_path / "sys/module/brd").mkdir(parents=True)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    assert "may be in use" in place.in_the_way("brd", "rd_nr=1")
    assert place.in_the_way("brd", "") == ""
    assert place.in_the_way("null_blk", "gb=1") == "this kernel has no module null_blk"
    folder = tmp_path / "lib/modules" / os.uname().release
    folder.mkdir(parents=True)
    (folder / "modules.dep").write_text("kernel/null_blk/null-blk.ko.xz: kernel/configfs.ko\n")
    (folder / "modules.builtin").write_text("kernel/fs/ext4.ko\n")
    assert place.in_the_way("null_blk", "gb=1") == place.in_the_way("ext4", "") == ""


def test_only_a_vm_gives_what_only_a_vm_can():
    here = place.Here(Path("trapless.ko"), True)
    for wrong in (LabConfig(icount=True), LabConfig(host_root=True), LabConfig(append="x")):
        with pytest.raises(ValueError, match="needs a VM"):
            here.run(wrong, ["true"], stdin=None, sink=print, progress=Silent())
    with pytest.raises(LeftOutError, match="takes 4096 CPUs"):
        here.run(LabConfig(cpus=4096), ["true"], stdin=None, sink=print, progress=Silent())


@pytest.mark.parametrize(
    ("least", "quick", "rounds"), [(True, True, 3), (False, True, 9), (False, False, 41)]
)
def test_the_least_run_is_shorter_than_a_quick_one_and_says_that_it_was_made(
    least, quick, rounds, tmp_path
):
    here = place.Here(Path("trapless.ko"), True, least=least)
    run = Collection("ls", tmp_path, quick, "6.x", Silent(), place=here)
    extent = Extent(41, 9, fit.SAMPLES_MIN)
    assert run.chosen(extent) == rounds
    assert ("--least" in make_meta(run, [], [])["command"]) == least
    assert Collection("ls", tmp_path, quick, "6.x", Silent()).chosen(extent) == (9 if quick else 41)


def test_records_of_the_kernels_log_become_lines():
    line = kernel_log.line_of(b"4,1042,7000001,-,caller=T9;WARNING: CPU: 0\n DEVICE=+x\n")
    assert line == "[    7.000001] WARNING: CPU: 0\n"
    assert kernel_log.line_of(b"damaged") == "[    0.000000] \n"


def test_clocks_become_nanoseconds_by_the_counters_own_rate():
    clock = timed_rows.Clock.of([{"x": 1}, ROW, {**ROW, "clocks_per_ns": 2.0}, ROW])
    assert clock.ns([250, 500, 750]).value == 200.0
    assert not clock.emulated
    for rows in ([], [{**ROW, "clocks_per_ns": 0}]):
        with pytest.raises(ValueError, match="counter"):
            timed_rows.Clock.of(rows)


def test_an_emulators_clock_decides_no_claim():
    real, emulated = timed_rows.Clock.of([ROW]), timed_rows.Clock.of([EMULATED])
    less, more = {"ratio": 0.9}, {"ratio": 0.97}
    assert real.judge("dms-ls5", "90%", less, "why not").holds is True
    assert real.judge("dms-ls5", "97%", more, "why not").note == "why not"
    even, uneven = fit.summary([1.0, 1.0, 1.1]), fit.summary([0.1, 1.0, 9.0])
    assert real.judge("dms-ls5", "90%", less, "why not", [even]).holds is True
    assert "rounds differ" in real.judge("dms-ls5", "90%", less, "", [even, uneven]).note
    undecided = emulated.judge("dms-ls5", "90%", less, "why not")
    assert undecided.holds is None
    assert "emulated" in undecided.note


def test_the_processors_events_become_metrics_and_the_kernels_do_not():
    row = {"kind": "events", "call": "getpid", "mechanism": "batch", "n": 8, "ops": 512}
    rows = [
        {**row, "repeat": at, "events": {"instructions": 51200 + at * 512, "clocks": 1024}}
        for at in range(3)
    ]
    rows.append({**row, "repeat": 3, "events": {"page_faults": 4, "context_switches": 0}})
    metrics = timed_rows.event_metrics(rows, "{call}.{mechanism}.n{n}")
    assert metrics["getpid.batch.n8.instructions"].value == 101
    assert metrics["getpid.batch.n8.instructions"].kind == "measured"
    assert metrics["getpid.batch.n8.clocks"].n == 3
    assert len(metrics) == 2


def saved(folder: Path, accelerator: str, holds: bool | None, machine_name: str) -> Result:
    open_ = claims.undecided("dms-saving", "some clocks", "a note")
    claim = dataclasses.replace(open_, holds=holds)
    metrics = {"getpid.trap.static.ns": Metric(1.0, "ns", "measured")}
    result = Result("mode-switch", "6.1", accelerator, machine_name, metrics, (claim,))
    result_file.save(result, folder / "mode-switch")
    return result


@pytest.mark.parametrize("place", ["results/6.1/Ryzen", "results/Ryzen"])
def test_a_claim_that_the_lab_leaves_open_is_decided_by_a_machine_with_clocks(place, tmp_path):
    lab = tmp_path / "results" / "6.1"
    result = saved(lab, "tcg", None, "an emulator")
    saved(tmp_path / place, "none", True, "Ryzen 7")
    decided = open_claims.decided(lab)
    section = Section("mode-switch", "", "", (), result, (), (), {})
    (claim,) = Report(lab, (section,), (), decided).claims
    assert claim.holds is True
    assert claim.ours == "some clocks, on Ryzen 7"
    assert section.result.claims[0].holds is None
    saved(tmp_path / "results" / "6.1" / "Xeon", "none", False, "Xeon")
    open_again = open_claims.decided(lab)["dms-saving"]
    assert open_again.holds is None
    assert "on Ryzen 7" in open_again.ours
    assert "on Xeon" in open_again.ours


def test_results_of_vms_and_damaged_ones_decide_nothing(tmp_path):
    lab = tmp_path / "results" / "6.1"
    saved(lab, "tcg", None, "an emulator")
    saved(tmp_path / "results" / "6.12", "tcg", True, "an emulator")
    damaged = tmp_path / "results" / "damaged" / "mode-switch"
    damaged.mkdir(parents=True)
    (damaged / "result.json").write_text("{")
    assert open_claims.decided(lab) == {}


def test_what_cannot_run_here_is_left_out_and_has_not_failed(tmp_path):
    def collect(run):
        raise LeftOutError("its module is not built")

    part = experiment.Part("none", collect, lambda raw: experiment.Findings(), lambda raw: ())
    ls = experiment.get_here("ls")
    assert ls is not None
    spec = dataclasses.replace(ls, parts=(part,))
    notes, here = Notes(), place.Here(Path("trapless.ko"), True)
    outcome = evaluate.run_at(
        here, [spec], quick=True, out=tmp_path, progress=notes, reported=False
    )
    assert outcome.status == 0
    assert notes.said == ["ls is left out: its module is not built"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("part", ["load", "command"])
def test_an_interrupt_at_any_moment_leaves_no_module(part, monkeypatch, tmp_path):
    """Also one that comes while the module is being loaded, or a process is being started."""
    done = []

    def load(progress, parameters, path):
        done.append("loaded")
        if part == "load":
            signal.raise_signal(signal.SIGINT)

    def made(plan):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(module, "load", load)
    monkeypatch.setattr(module, "unload", lambda progress: done.append("unloaded"))
    monkeypatch.setattr(root, "made", made)
    monkeypatch.setattr(kernel_log, "DEVICE", "/dev/null")
    with pytest.raises(KeyboardInterrupt):
        place.Here(tmp_path, True).run(
            LabConfig(cpus=1), ["true"], stdin=None, sink=print, progress=Silent()
        )
    assert done == ["loaded", "unloaded"]


KILLED = """
import os, sys
from pathlib import Path
from trapless.experiments.here import place
from trapless.vm.guest_tree import GuestPlan
script = "sleep 900 & echo $$ $!; sleep 900"
plan = GuestPlan(("sh",))
place._pump(Path(sys.argv[1]), ["sh", "-c", script], plan, None, lambda b: os.write(1, b), 600)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="another user may not change the root")
def test_a_kill_of_the_command_ends_the_workload_and_its_children(tmp_path):
    for name in ("bin", "dev", "root"):
        (tmp_path / name).mkdir()
    (tmp_path / "dev/null").touch()
    shutil.copy(shutil.which("busybox"), tmp_path / "bin/busybox")
    for name in ("sh", "sleep"):
        (tmp_path / "bin" / name).symlink_to("busybox")
    argv = [sys.executable, "-c", KILLED, tmp_path]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT) as command:
        pids = [int(word) for word in command.stdout.readline().split()]
        ends = [os.pidfd_open(pid) for pid in pids]
        command.kill()
    left = [end for end in ends if not select.select([end], [], [], 60)[0]]
    for end in ends:
        if end in left:
            signal.pidfd_send_signal(end, signal.SIGKILL)
        os.close(end)
    assert len(pids) == 2 and not left
