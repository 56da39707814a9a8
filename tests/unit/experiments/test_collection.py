# SPDX-License-Identifier: GPL-2.0-only
"""Collecting saves what a workload prints, resumes what was interrupted, and fails loudly.

The VM is stood in for by a function that prints what a guest would; what a guest really prints is
in docs/results and is read by test_experiment.py.
"""

from __future__ import annotations

import io
import json
import lzma
import shutil
import subprocess
import sys

import pytest

from tests import copied_experiment
from trapless.base.console import Silent, TraplessError
from trapless.base.paths import repo_root
from trapless.experiments import collection as collection_file
from trapless.experiments import experiment, raw_files
from trapless.results.result_file import Metric
from trapless.vm import lab

ROW = {"mechanism": "plain", "call": "getpid", "n": 1, "kind": "counted", "value": 5, "ops": 1}
GOOD = [ROW, {"check": "getpid.plain", "made": 512, "executed": 512}, {"complete": True}]
QUIET_LOG = "[    0.000000] Linux version 0.0\n"


class Guest:
    """What lab.run() does, without a VM: prints lines in odd pieces."""

    def __init__(self, lines, *, status=0, log=QUIET_LOG, stderr=b"", tail=b""):
        self.output = b"".join(
            line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines
        )
        self.output += tail
        self.status, self.log, self.stderr, self.runs = status, log, stderr, 0
        self.release = "0.0-stock"

    def __call__(self, config, argv, *, sink, progress, stdin=None):
        self.runs += 1
        self.config = config
        for at in range(0, len(self.output), 7):
            sink(self.output[at : at + 7])
        return lab.LabResult(
            status=self.status,
            stdout=b"",
            stderr=self.stderr,
            kernel_log=self.log,
            release=self.release,
            boot_s=1.234,
            qemu_argv=("qemu", "-kernel", "x"),
            provenance=(("image", "sha256:0"),),
        )


@pytest.fixture
def collection(tmp_path):
    collection = collection_file.Collection("made-up", tmp_path, True, "6.1", Silent())
    collection.part = "calls"
    return collection


def install(monkeypatch, guest):
    monkeypatch.setattr(lab, "run", guest)
    return guest


def boot(collection, label="counted", argv=("/bin/x",)):
    return collection.boot(label, lab.LabConfig(), argv)


def test_rows_come_back_and_are_saved(collection, monkeypatch):
    install(monkeypatch, Guest(GOOD))
    assert boot(collection) == GOOD[:2]
    collection.write([{"check": "from elsewhere", "made": 1}])
    collection.finish()
    rows = raw_files.read_rows(collection.directory / "raw.jsonl")
    assert {"boot": "calls-counted", "part": "calls", **ROW} in rows
    assert {"part": "calls", "check": "from elsewhere", "made": 1} in rows
    meta = json.loads((collection.directory / "meta.json").read_text())
    assert meta["kernel"] == "0.0-stock"
    assert meta["provenance"] == {"image": "sha256:0"}
    assert meta["command"] == ["trapless", "evaluate", "made-up", "--kernel", "6.1", "--quick"]
    assert meta["boots"]["calls-counted"]["argv"] == ["/bin/x"]
    assert {"calls-counted: getpid.plain"} <= {check["name"] for check in meta["checks"]}
    assert not (collection.directory / "boots").exists()


@pytest.mark.parametrize("quick", [False, True])
def test_guests_of_quick_runs_alone_start_quickly(tmp_path, monkeypatch, quick):
    guest = install(monkeypatch, Guest(GOOD))
    boot(collection_file.Collection("made-up", tmp_path, quick, "6.1", Silent(), part="calls"))
    assert guest.config.quick_start is quick


@pytest.mark.parametrize("quick", [False, True])
def test_a_guest_that_stands_still_is_started_once_more_in_a_quick_run(
    tmp_path, monkeypatch, quick
):
    guest, limits = Guest(GOOD), []

    def run(config, argv, **words):
        limits.append(config.timeout_s)
        if not limits[1:]:
            words["sink"](b'{"half": ')
            raise lab.LabError("the time limit", "", timed_out=True)
        return guest(config, argv, **words)

    monkeypatch.setattr(lab, "run", run)
    made = collection_file.Collection("made-up", tmp_path, quick, "6.1", Silent(), part="calls")
    config = lab.LabConfig(timeout_s=7200.0)
    if quick:
        assert made.boot("counted", config, ["/bin/x"]) == GOOD[:2]
        assert limits == [collection_file.QUICK_TIMEOUT_S] * 2
    else:
        with pytest.raises(lab.LabError, match="time limit"):
            made.boot("counted", config, ["/bin/x"])
        assert limits == [7200.0]


def test_an_interrupted_experiment_goes_on_after_the_last_whole_boot(collection, monkeypatch):
    install(monkeypatch, Guest(GOOD))
    boot(collection)
    install(monkeypatch, interrupted := Guest([ROW]))
    interrupted_run = interrupted.__call__

    def break_off(*args, **words):
        interrupted_run(*args, **words)
        raise KeyboardInterrupt

    monkeypatch.setattr(lab, "run", break_off)
    with pytest.raises(KeyboardInterrupt):
        boot(collection, "measured")

    again = collection_file.Collection("made-up", collection.directory, True, "6.1", Silent())
    again.part = "calls"
    guest = install(monkeypatch, Guest(GOOD))
    assert boot(again) == GOOD[:2]
    assert guest.runs == 0
    assert boot(again, "measured") == GOOD[:2]
    assert guest.runs == 1
    assert again.resumed == ["calls-counted"]


def test_what_was_collected_under_other_conditions_is_not_resumed(collection, monkeypatch):
    guest = install(monkeypatch, Guest(GOOD))
    boot(collection)
    again = collection_file.Collection("made-up", collection.directory, True, "6.1", Silent())
    again.part = "calls"
    boot(again, argv=("/bin/x", "--other"))
    assert guest.runs == 2


def test_boots_on_different_kernels_are_no_experiment(collection, monkeypatch):
    guest = install(monkeypatch, Guest(GOOD))
    boot(collection)
    guest.release = "0.1-newer"
    boot(collection, "measured")
    with pytest.raises(TraplessError, match=r"counted on 0\.0-stock, calls-measured on 0\.1"):
        collection.finish()
    assert not (collection.directory / "raw.jsonl").exists()


@pytest.mark.parametrize(
    ("guest", "said"),
    [
        (
            Guest([ROW, {"failure": "getpid by batch: 512 calls made, 0 executed"}], status=1),
            "a check failed: getpid by batch: 512 calls made, 0 executed",
        ),
        (Guest([ROW], status=139, stderr=b"killed\n"), "status 139; it printed: killed"),
        (Guest([b"not a row\n"], status=1), "status 1; it printed: not a row"),
        (Guest([b"[" * 100_000 + b"\n"], status=1), "status 1; it printed: [[["),
        (Guest([ROW]), "without its last line"),
        (Guest(GOOD[:2], tail=b'{"complete": tr'), "without its last line"),
        (Guest(GOOD, log="[    1.0] BUG: kernel NULL pointer dereference\n"), "complained"),
    ],
)
def test_a_run_that_went_wrong_is_an_error_that_says_so(collection, monkeypatch, guest, said):
    install(monkeypatch, guest)
    with pytest.raises(TraplessError) as error:
        boot(collection)
    assert said in str(error.value)
    assert (collection.directory / "calls-counted.log").exists()
    assert not (collection.directory / "boots" / "calls-counted.jsonl").exists()


def test_rows_are_on_disk_before_the_run_ends(collection, monkeypatch):
    part = collection.directory / "boots" / "calls-counted.part"
    seen = []

    def run(config, argv, *, sink, progress, stdin=None):
        sink(json.dumps(ROW).encode() + b'\n{"progress": 1, "total": 2}\n')
        seen.append(part.read_text())
        raise KeyboardInterrupt

    monkeypatch.setattr(lab, "run", run)
    with pytest.raises(KeyboardInterrupt):
        boot(collection)
    assert json.dumps(ROW) in seen[0]


def test_two_boots_of_one_name_are_a_mistake(collection, monkeypatch):
    install(monkeypatch, Guest(GOOD))
    boot(collection)
    with pytest.raises(ValueError, match="two boots"):
        boot(collection)


def test_progress_reaches_the_console():
    class Watcher(Silent):
        def __init__(self):
            self.seen = []

        def advance(self, done, total):
            self.seen.append((done, total))

    watcher = Watcher()
    stream = collection_file.RowStream(io.StringIO(), "title", watcher)
    stream.feed(b'{"progress": 3, "to')
    stream.feed(b'tal": 6}\n')
    stream.close()
    assert watcher.seen == [(3, 6)]
    assert stream.rows == []


def test_command_lines_do_not_tell_where_files_are(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("TRAPLESS_CACHE", "/home/ada/.cache/trapless")
    words = ["/home/ada/.cache/trapless/k/home/ada/x", "file=/home/ada/y,share=on", "/srv/home/ada"]
    assert [collection_file.anonymous(word) for word in words] == [
        "CACHE/k/home/ada/x",
        "file=~/y,share=on",
        "/srv/home/ada",
    ]


def test_damaged_raw_data_is_named_by_file_and_line(tmp_path):
    path = tmp_path / "raw.jsonl"
    with pytest.raises(TraplessError, match=r"raw\.jsonl: no such file"):
        raw_files.read_rows(path)
    path.write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(TraplessError, match="line 2: not JSON"):
        raw_files.read_rows(path)
    path.write_text('{"a": 1}\n[1]\n')
    with pytest.raises(TraplessError, match="line 2: not an object"):
        raw_files.read_rows(path)
    path.write_text("[" * 100_000)
    with pytest.raises(TraplessError, match="line 1: not JSON"):
        raw_files.read_rows(path)


def test_raw_data_may_be_packed(tmp_path):
    path, packed = tmp_path / "raw.jsonl", tmp_path / "raw.jsonl.xz"
    assert not raw_files.is_saved(path)
    packed.write_bytes(lzma.compress(b'{"a": 1}\n')[:-3])
    with pytest.raises(TraplessError, match=r"raw\.jsonl\.xz: cannot be read"):
        raw_files.read_rows(path)
    packed.write_bytes(lzma.compress(b'{"a": 1}\n'))
    assert raw_files.is_saved(path)
    assert raw_files.read_rows(path) == [{"a": 1}]
    path.write_text('{"a": 2}\n')
    assert raw_files.read_rows(path) == [{"a": 2}]  # newer: a run writes this one


def test_boots_that_a_part_ran_by_itself_are_kept_and_found_again(collection):
    config = lab.LabConfig()
    result = Guest(GOOD)(config, ("/bin/x",), sink=lambda piece: None, progress=None)
    head = collection_file.boot_record("calls", "calls-vm1", "key", config, ("/bin/x",), result)
    collection.adopt(head, GOOD[1:2])

    again = collection_file.Collection("made-up", collection.directory, True, "6.1", Silent())
    assert again.adopt_saved("another key") == []
    assert again.adopt_saved("key") == ["calls-vm1"]
    again.finish()
    assert raw_files.read_rows(again.directory / "raw.jsonl") == [
        {"boot": "calls-vm1", "part": "calls", **GOOD[1]}
    ]


@pytest.mark.parametrize(
    "source",
    [
        "kmod/Kbuild",
        "kmod/compat/features.mk",
        "kmod/supervisor/entry.S",
        "include/trapless.h",
        "trapless/vm/guest/init.c",
        "trapless/vm/qemu.py",
        "trapless/stock/kernels.py",
    ],
)
def test_a_saved_boot_is_stale_when_a_source_of_it_has_changed(tmp_path, monkeypatch, source):
    for folder in ("kmod", "include", "trapless/vm", "trapless/stock"):
        shutil.copytree(repo_root() / folder, tmp_path / folder)
    monkeypatch.setattr(collection_file, "repo_root", lambda: tmp_path)
    monkeypatch.setattr(collection_file, "PACKAGE", tmp_path / "trapless")

    def key():
        return collection_file.boot_key(lab.LabConfig(), ("/bin/x",))

    before = key()
    (tmp_path / "kmod" / "notes.txt").write_text("of nobody")
    assert key() == before
    with (tmp_path / source).open("a") as file:
        file.write("\n")
    assert key() != before


@pytest.mark.parametrize(
    ("changed", "is_dirty"),
    [("eval/ls/spec.py", True), ("docs/results/6.1/raw", False), ("eval/ls/README.md", False)],
)
def test_a_version_is_dirty_where_what_is_measured_may_have_changed(
    tmp_path, monkeypatch, changed, is_dirty
):
    def git(*words):
        identity = ("-c", "user.name=x", "-c", "user.email=x@x")
        subprocess.run(["git", "-C", tmp_path, *identity, *words], check=True, timeout=600)

    file = tmp_path / changed
    file.parent.mkdir(parents=True)
    file.write_text("before")
    monkeypatch.setattr(collection_file, "repo_root", lambda: tmp_path)
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "x")
    committed = collection_file.trapless_version.__wrapped__()
    assert "(" in committed and "-dirty" not in committed
    file.write_text("after")
    assert collection_file.trapless_version.__wrapped__().endswith("-dirty)") == is_dirty


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The tree of a newcomer who has copied the experiment of examples/; experiments are its."""
    tree = tmp_path / "tree"
    copied_experiment.copy_as_contributing_says(tree)
    monkeypatch.setattr(experiment, "repo_root", lambda: tree)
    monkeypatch.syspath_prepend(tree)
    yield tree
    for name in [name for name in sys.modules if name.startswith("eval.own_call")]:
        del sys.modules[name]
    experiment.load_spec.cache_clear()


def test_the_experiment_to_copy_is_collected_and_analysed_once_it_is_copied(
    copied, tmp_path, monkeypatch
):
    monkeypatch.setattr(experiment, "workload", lambda name: copied / "README.md")
    (copied / "README.md").touch()
    name = copied_experiment.NAME
    assert name in experiment.names()
    rows = [{"way": way, "value": n} for way, n in (("plain", 9.5), ("plain", 9), ("batch", 4))]
    good = {"check": "the module made each call", "made": 64, "executed": 64}
    guest = install(monkeypatch, Guest([*rows, good, {"complete": True}]))
    words = {"quick": True, "kernel": "6.1", "progress": Silent()}
    out = tmp_path / name
    experiment.collect(experiment.get(name), out, **words)
    assert guest.config.icount and guest.runs == 1
    assert experiment.analyse(name, out).metrics == {
        "getppid.plain.n32.instructions": Metric(9, "instructions", "counted", 2, 0.5),
        "getppid.batch.n32.instructions": Metric(4, "instructions", "counted", 1, 0),
    }
    assert experiment.figures(name, out) == ()
    install(monkeypatch, Guest([*rows, {**good, "executed": 63}, {"complete": True}]))
    with pytest.raises(TraplessError, match="did not make each call"):
        experiment.collect(experiment.get(name), tmp_path / "other", **words)


def test_the_experiment_to_copy_is_no_experiment_where_it_lies():
    assert copied_experiment.NAME not in experiment.names()


@pytest.mark.slow
def test_the_copy_builds_says_what_it_lacks_and_passes_its_own_test(copied):
    program = f"build/eval/own_call/{copied_experiment.NAME}"
    subprocess.run(["make", "-s", program], cwd=copied, check=True, timeout=600)
    done = subprocess.run([f"./{program}", "3"], cwd=copied, capture_output=True, timeout=600)
    assert done.returncode == 1 and b'{"failure": "the module offers no batch: ' in done.stdout
    argv = [sys.executable, "-m", "pytest", "-q", "tests/unit/eval"]
    done = subprocess.run(argv, cwd=copied, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout
