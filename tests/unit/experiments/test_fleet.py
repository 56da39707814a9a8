# SPDX-License-Identifier: GPL-2.0-only
"""Fleets: a grid's rows and runs of `trapless stat` over VMs, whatever a VM, a worker or the runner
dies of.

The guest is stood in for (made_up_guest.py), and Dask's workers are threads; the processes beside
the VMs are real. Workers of their own and real VMs are tests/lab/experiments/test_lab_grid.py's.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.unit.experiments import made_up_guest
from tests.unit.experiments.made_up_guest import COLUMNS, COUNTS, REGIONS, counts
from trapless.base.console import Silent, TraplessError
from trapless.experiments import collection, evaluate, raw_files, stat_runs
from trapless.experiments.fleet import engine, fleet, fleet_machine, grid, vm_task
from trapless.model import plugin_choice
from trapless.stat import guest, labels
from trapless.stat.guest import Job
from trapless.stock.kernel import Kernel
from trapless.vm import lab, qemu
from trapless.vm.initramfs import Packed

pytestmark = [
    pytest.mark.slow,  # clusters of processes
    pytest.mark.skipif(find_spec("distributed") is None, reason="distributed is not installed"),
]

ROOT = Path(__file__).resolve().parents[3]
ROWS, VMS = 5, 2
ALIKE = {fleet_machine.NAME: "here", **dict.fromkeys(fleet_machine.REMEDIES, "alike")}


class Plan:
    """What is modelled, as far as a grid cares."""

    words = "cache l2 size=1"

    def text(self, memory_bytes):
        return f"memory {memory_bytes}\n{self.words}\n"


def a_grid(name="g"):
    return grid.Grid(
        name=name, rows=ROWS, regions=REGIONS, vms=VMS, config=lab.LabConfig(),
        argv=("/bin/x", "--rows", grid.MASK), plan=Plan(), total=float(ROWS * REGIONS),
        row_of=lambda label: label // 10, effort=lambda label: 1.0,
        describe=lambda label: {"order": "batched", "user_kb": label // 10},
    )  # fmt: skip


def cluster(workers):
    import distributed  # it takes half a second, and only a run of these tests needs it

    return engine.patiently(lambda: distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=False, protocol="tcp://",
        host="127.0.0.1", dashboard_address="127.0.0.1:0",
    ))  # fmt: skip


@pytest.fixture(scope="module")
def scheduler():
    """The address of one with two workers, threads of this process."""
    with cluster(2) as made:
        yield made.scheduler_address


@pytest.fixture(autouse=True)
def without_qemu(monkeypatch, tmp_path):
    stand_in(monkeypatch, tmp_path)


def stand_in(monkeypatch, tmp_path):
    """For QEMU, the plugin and kernels."""
    library, image = tmp_path / "model.so", tmp_path / "image"
    library.write_bytes(b"plugin")
    image.write_bytes(b"image")
    kernel = Kernel("6.1", "0.0-stock", image, None, None)
    monkeypatch.setattr(plugin_choice, "file", lambda binary: library)
    monkeypatch.setattr(qemu, "binary", lambda: "qemu")
    monkeypatch.setattr(lab, "prepare", lambda *_: lab.Guest(kernel, Packed(b"archive")))
    monkeypatch.setattr(fleet_machine, "conditions", lambda: ALIKE)
    monkeypatch.setattr(engine, "DRIVER", made_up_guest.__name__)


class Runner:
    """Collects the grid into folders, on a scheduler's workers, with guests that may misbehave."""

    def __init__(self, scheduler, monkeypatch):
        self.scheduler, self._monkeypatch = scheduler, monkeypatch

    def __call__(self, folder, **guest):
        """One collection into a folder; the masks of the VMs that were started."""
        ran = folder.with_name(f"{folder.name}.ran")
        ran.unlink(missing_ok=True)
        self._monkeypatch.setenv(made_up_guest.VARIABLE, json.dumps({"ran": str(ran), **guest}))
        folder.mkdir(exist_ok=True)
        run = collection.Collection("made-up", folder, True, "6.1", Silent())
        run.part, run.scheduler = "pairs", self.scheduler
        grid.collect(run, [a_grid()])
        run.finish()
        return sorted(line.split()[0] for line in lines_of(ran))

    def count(self, folder, **told):
        """Two programs counted into a folder; how often a VM was started, and the raw rows."""
        ran = folder.with_name(f"{folder.name}.ran")
        self._monkeypatch.setenv(made_up_guest.VARIABLE, json.dumps({"ran": str(ran), **told}))
        self._monkeypatch.setattr(stat_runs.Run, "key", property(lambda run: f"key of {run.label}"))
        self._monkeypatch.setattr(guest, "config", lambda base, progress: base)
        folder.mkdir(exist_ok=True)
        run = collection.Collection("made-up", folder, True, "6.1", Silent())
        run.part, run.scheduler = "programs", self.scheduler
        wanted = [
            stat_runs.Run(name, lab.LabConfig(), Job(("ls",)), ("core-i7-9700k",), "echo 2 of 2")
            for name in ("one", "two")
        ]
        stat_runs.collect(run, wanted)
        run.finish()
        return len(lines_of(ran)), raw_files.read_rows(folder / raw_files.RAW_FILE)


def lines_of(ran):
    return ran.read_text().splitlines() if ran.exists() else []


@pytest.fixture
def run(scheduler, monkeypatch):
    return Runner(scheduler, monkeypatch)


@pytest.fixture(scope="module")
def made(scheduler, tmp_path_factory):
    """A folder with collections to begin with: one that is whole, one a guest of which has died."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch, folder)
        collects = Runner(scheduler, patch)
        assert collects(folder / "whole") == ["01010", "10101"]
        with pytest.raises(TraplessError, match=r"g-vm0: the VM ended.*\n4 of 5 rows are finished"):
            collects(folder / "interrupted", dies_at=41)
    return folder


@pytest.fixture
def interrupted(made, tmp_path):
    """A folder of the test's own, of a collection that has four rows of five."""
    return Path(shutil.copytree(made / "interrupted", tmp_path / "a"))


def rows_in(folder):
    return len(list((folder / grid.ROWS_FOLDER / "g").glob("row-*.parquet")))


def wait_until(true, seconds=600):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.1)
    assert true()


def is_alive(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_all_rows_become_one_file_in_order(made):
    table = pq.read_table(made / "whole" / "g.parquet").to_pydict()
    labels = [10 * row + region for row in range(ROWS) for region in range(REGIONS)]
    assert table["user_kb"] == [label // 10 for label in labels]
    assert [list(pair) for pair in zip(*(table[c] for c in COLUMNS), strict=True)] == [
        counts(label) for label in labels
    ]
    assert not (made / "whole" / grid.ROWS_FOLDER).exists()
    columns = pq.read_metadata(made / "whole" / "g.parquet").row_group(0).to_dict()["columns"]
    assert not any(one["has_dictionary_page"] or one["statistics"] for one in columns)
    raw = raw_files.read_rows(made / "whole" / "raw.jsonl")
    assert sorted(row["boot"] for row in raw) == ["g-vm0", "g-vm1"]


def test_a_guest_that_dies_in_a_row_loses_that_row_alone(made, interrupted, run):
    assert rows_in(interrupted) == 4
    assert run(interrupted) == ["10101"]  # the other VM's rows are there
    repaired, whole = (folder / "g.parquet" for folder in (interrupted, made / "whole"))
    assert repaired.read_bytes() == whole.read_bytes()


def test_a_finished_grid_is_not_run_again_for_what_was_to_come_after_it(tmp_path, run, monkeypatch):
    folder = tmp_path / "a"

    def is_interrupted(collection):
        raise KeyboardInterrupt

    with monkeypatch.context() as later:
        later.setattr(collection.Collection, "finish", is_interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(folder)
    whole = (folder / "g.parquet").read_bytes()
    assert run(folder) == [] and (folder / "g.parquet").read_bytes() == whole
    assert not (folder / grid.ROWS_FOLDER).exists()
    raw = raw_files.read_rows(folder / "raw.jsonl")
    assert sorted(row["boot"] for row in raw) == ["g-vm0", "g-vm1"]
    assert run(folder) == ["01010", "10101"]  # that run was over: this is another


def test_the_last_region_of_a_guest_that_failed_a_check_is_not_kept(tmp_path, run):
    with pytest.raises(TraplessError, match=r"without its last line.*\n3 of 5 rows"):
        run(tmp_path / "a", good=False)


def test_a_row_made_again_must_be_what_it_was(interrupted, run):
    with pytest.raises(TraplessError, match="row 0 of g was made again and differs"):
        run(interrupted, wrong=True)


def test_rows_of_other_conditions_are_dropped(interrupted, run, monkeypatch):
    monkeypatch.setattr(Plan, "words", "cache l2 size=2")
    assert run(interrupted, wrong=True) == ["01010", "10101"]


def test_a_damaged_row_is_made_again(interrupted, run):
    broken = interrupted / grid.ROWS_FOLDER / "g" / "row-00001.parquet"
    broken.write_bytes(broken.read_bytes()[:100])
    assert run(interrupted) == ["01010", "10101"]
    assert pq.read_table(interrupted / "g.parquet").num_rows == ROWS * REGIONS


def test_what_the_model_complains_of_ends_the_vm_and_no_other(tmp_path, run):
    with pytest.raises(TraplessError, match=r"g-vm1: the model complains: two regions at once\n"):
        run(tmp_path / "a", complains_at=10, hangs=11)
    assert rows_in(tmp_path / "a") >= 3
    wait_until(lambda: not any(map(is_alive, pids_of(tmp_path / "a.ran"))))


def test_a_killed_process_beside_a_vm_is_a_failed_vm(tmp_path, run):
    """What it had finished is kept; nothing of it stays."""
    context = multiprocessing.get_context("fork")
    folder, ran = tmp_path / "a", tmp_path / "a.ran"

    def kill():
        wait_until(lambda: rows_in(folder) == 4)
        pid = next(int(line.split()[1]) for line in lines_of(ran) if line.startswith("1"))
        os.kill(pid, signal.SIGKILL)

    killer = context.Process(target=kill)
    killer.start()
    with pytest.raises(TraplessError, match=r"g-vm0: the process that drove the VM was killed"):
        run(folder, hangs=40)
    killer.join()
    assert run(folder) == ["10101"]


def test_programs_are_counted_on_the_same_workers(tmp_path, run):
    started, rows = run.count(tmp_path / "a")
    assert started == 2
    assert sorted(row["boot"] for row in rows) == ["programs-one", "programs-two"]
    for row in rows:
        assert row["run"] == row["boot"].removeprefix("programs-") and row["proof"] == "2 of 2"
        assert row["counted"]["program"] == [2 * count for count in COUNTS]
        assert (row["counted"]["turns"], row["counted"]["release"]) == (2, "0.0-stock")
    assert list((tmp_path / "a").glob(fleet.FOLDER)) == []


def test_a_program_that_was_not_counted_to_its_end_is_named(tmp_path, run):
    with pytest.raises(TraplessError, match=r"programs-(one|two): the run was not counted to its"):
        run.count(tmp_path / "a", lacks=[labels.FACT_STATUS])
    assert list((tmp_path / "a" / collection.BOOTS).glob("*")) == []


def test_workers_of_this_machine_have_their_files_beside_the_results(tmp_path, run, monkeypatch):
    """What a killed run leaves goes when the next one begins, and nothing of it is elsewhere."""
    left, calls = tmp_path / "a" / fleet.FOLDER / "left", []

    def fails(*, local_directory, **_):
        calls.append((Path(local_directory), left.exists()))
        raise OSError("no port is free")

    left.mkdir(parents=True)
    monkeypatch.setattr("distributed.LocalCluster", fails)
    run.scheduler = None
    with pytest.raises(TraplessError, match="starts no workers on this machine: no port is free"):
        run(tmp_path / "a")
    assert calls == [(left.parent, False)]
    assert not left.parent.exists()


def test_other_machines_are_compared_before_anything_runs(tmp_path, run, monkeypatch):
    theirs = {**ALIKE, fleet_machine.NAME: "lab-7", "QEMU": "10.0"}

    def conditions():
        ours = threading.current_thread() is threading.main_thread()
        return ALIKE if ours else theirs

    monkeypatch.setattr(fleet_machine, "conditions", conditions)
    with pytest.raises(TraplessError, match=r"lab-7.*QEMU is '10.0' there and 'alike' here; inst"):
        run(tmp_path / "a")
    assert lines_of(tmp_path / "a.ran") == []


def test_a_machine_that_changed_meanwhile_is_refused_by_itself(monkeypatch):
    worker = type("W", (), {"address": "tcp://w:1"})
    monkeypatch.setattr("distributed.get_worker", lambda: worker)
    conditions = {**ALIKE, "firmware": "older"}
    order = vm_task.Order("", "q", "v", 1.0, conditions)
    _, outcome = vm_task.run_vm(None, {}, order)
    assert "firmware is 'alike' there and 'older' here; install the same" in outcome.failure


def test_workers_that_cannot_import_trapless_or_run_vms_say_so():
    missing = Exception("ModuleNotFoundError(\"No module named 'trapless'\")")
    assert "start it with PYTHONPATH" in engine._unfit("tcp://w:1", missing)
    lame = TraplessError("qemu-system-x86_64 is not on this machine")
    assert "w:1 cannot run VMs: qemu-system-x86_64 is" in engine._unfit("tcp://w:1", lame)


def test_a_scheduler_that_does_not_answer_is_named(tmp_path, run, monkeypatch):
    monkeypatch.setattr(engine, "CONNECT_S", 0.5)
    for address in ("tcp://127.0.0.1:9", "nonsense"):
        run.scheduler = address
        with pytest.raises(TraplessError, match=rf"no scheduler of Dask answers at '{address}'"):
            run(tmp_path / "a")


def test_a_thread_that_starts_late_is_waited_for(tmp_path, run, monkeypatch, scheduler):
    """Dask's event loop has a thread, and 10 s to start it."""
    import distributed

    client, late = distributed.Client, [True, True]

    def starts_late(*words, **options):
        assert not (late and late.pop())
        return client(*words, **options)

    monkeypatch.setattr("distributed.Client", starts_late)
    run.scheduler = scheduler
    run(tmp_path / "a")
    assert late == []


def test_a_scheduler_without_workers_is_told_apart(tmp_path, run, monkeypatch):
    monkeypatch.setattr(engine, "WORKERS_S", 0.5)
    with cluster(0) as empty:
        run.scheduler = empty.scheduler_address
        with pytest.raises(TraplessError, match=r"has no workers; eval/fleets.md"):
            run(tmp_path / "a")


def a_client(place, address, silent_s):
    """A process that collects the grid: for those who kill it."""
    program = (
        "import sys, pathlib, pytest; from tests.unit.experiments import test_fleet as t\n"
        "place, address, silent_s = pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])\n"
        "with pytest.MonkeyPatch.context() as patch:\n"
        "    t.stand_in(patch, place)\n"
        "    patch.setattr(t.engine, 'SILENT_S', silent_s)\n"
        "    patch.setattr(t.engine, 'PULSE_S', silent_s / 4)\n"
        "    t.Runner(address, patch)(place / 'a')\n"
    )
    words = (str(place), address, str(silent_s))
    (place / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(place / "tmp")}
    return subprocess.Popen([sys.executable, "-c", program, *words], cwd=ROOT, env=environment)


def pids_of(ran):
    return [int(line.split()[1]) for line in lines_of(ran)]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_vms_end_with_the_one_who_wanted_them_and_rows_stay(tmp_path, run, monkeypatch, how):
    """Workers are elsewhere and go on; a client that was killed says nothing to them."""
    folder, ran = tmp_path / "a", tmp_path / "a.ran"
    told = {"ran": str(ran), "hangs": 40}
    monkeypatch.setenv(made_up_guest.VARIABLE, json.dumps(told))  # the workers' processes have it
    client = a_client(tmp_path, run.scheduler, silent_s=2.0)
    saved = folder / collection.BOOTS / "g-vm1.jsonl"  # after its rows
    wait_until(lambda: rows_in(folder) == 4 and saved.exists())
    client.send_signal(how)
    client.wait()
    assert rows_in(folder) == 4
    assert list((tmp_path / "tmp").iterdir()) == []
    wait_until(lambda: not any(map(is_alive, pids_of(ran))))
    assert run(folder) == ["10101"]
    assert not (folder / fleet.FOLDER).exists()


def test_without_dask_the_remedy_is_named_and_nothing_else_imports_it(tmp_path, run, monkeypatch):
    program = (
        "import sys, trapless.cli, trapless.experiments.fleet.grid; "
        "print('distributed' in sys.modules)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(TraplessError, match=r"run `make .* setup`"):
        run(tmp_path / "a")


def test_only_those_with_many_vms_take_a_scheduler(tmp_path):
    with pytest.raises(TraplessError, match="with --scheduler run memory-hierarchy") as caught:
        evaluate.run(
            ["ls"], quick=True, out=tmp_path, kernel="", progress=Silent(), scheduler="tcp://h:1"
        )
    assert caught.value.status == 2
