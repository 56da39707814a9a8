# SPDX-License-Identifier: GPL-2.0-only
"""Peek at its full size: a q35 with 6 GiB that shares no memory and has 10,000 threads is opened,
traced, and reset again and again. One guest serves all.

Times are of processors, of this process and of those that it has started: a busy machine does not
decide. `--resets 20` makes a long run of it; what was seen is printed (pytest -rP).
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import time
from pathlib import Path

import pytest

from tests.lab.command import COMMAND, LIMIT_S, ROOT, wait_until
from tests.lab.peek.watched_guest import (
    GUEST_LIMIT_S,
    Guest,
    folder_of_memory,
    guest,
    peek,
    recording,
)
from trapless.peek.sampling.recording import Recording
from trapless.vm.qmp import Monitor

pytestmark = [
    pytest.mark.lab,
    pytest.mark.nightly,
    pytest.mark.tool,
    pytest.mark.timeout(1.5 * GUEST_LIMIT_S),
]

PROGRAM = ROOT / "tests/lab/peek/frames/sleeping_threads.c"
THREADS = 10_000
THREADS_S_MAX = 1.0
COLD_S_MAX, WARM_S_MAX = 2.0, 0.5
BUSY_FACTOR = 2
"""So much more processor time takes what shares cores and caches with other work."""
TRIES = 5
"""Most openings of a kind, where the machine is too busy to show that the goal is met."""
TRACE_S = 5
BOOT = "cat /proc/sys/kernel/random/boot_id"


def test_a_large_guest_is_opened_traced_and_followed(kernel, pytestconfig, monkeypatch):
    with folder_of_memory() as folder:
        program = folder / "threads"
        argv = ["cc", "-O1", "-static", "-pthread", str(PROGRAM), "-o", str(program)]
        subprocess.run(argv, check=True, timeout=LIMIT_S)
        options = {
            "kernel": kernel,
            "shared_memory": None,
            "board": "q35",
            "memory": "6G",
            "cpus": 2,
            "module": True,
            "module_parameters": "probes=8 events=sched_switch,sched_process_exec",
            "thread_single": True,  # the emulator runs into probes that come and go otherwise
        }
        with guest(folder, (program, "/threads"), **options) as running:
            with monkeypatch.context() as patch:
                it_is_opened_soon(running, folder, patch)
            running.say(f"/threads {THREADS} >/tmp/made & until [ -s /tmp/made ]; do sleep 1; done")
            assert running.say("cat /tmp/made") == "made"
            all_threads_are_found(running)
            no_event_is_lost(running)
            resets_are_followed(running, folder, pytestconfig.getoption("--resets"))


def processor_s() -> float:
    """What this process and those that it has started and that have ended have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def it_is_opened_soon(running: Guest, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """In the sandbox, as `top` and `record` do."""
    release, best = running.say("uname -r").strip(), {"cold": [], "warm": []}
    for number in range(TRIES):
        patch.setenv("TRAPLESS_CACHE", str(folder / f"cache-{number}"))
        for times in best.values():
            began, began_s = processor_s(), time.monotonic()
            with running.machine.open() as target:
                opened_s = time.monotonic() - began_s
                assert target.release.says(release)
            times.append((processor_s() - began, opened_s))
        if min(best["cold"])[0] <= COLD_S_MAX and min(best["warm"])[0] <= WARM_S_MAX:
            break
    print("opened in seconds of processors, by the clock:", best)
    assert min(best["cold"])[0] <= BUSY_FACTOR * COLD_S_MAX
    assert min(best["warm"])[0] <= BUSY_FACTOR * WARM_S_MAX


def all_threads_are_found(running: Guest) -> None:
    with running.machine.open(sandbox=False) as target:
        began = time.process_time()
        found = target.threads()
        seconds = time.process_time() - began
    assert sum(one.comm.says("threads") for one in found.values()) == THREADS + 1
    print(f"{len(found):,} threads were found in {seconds:.2f} s")
    assert seconds <= THREADS_S_MAX
    done = peek("top", *running.way, "--updates", "1", "--json")  # in the sandbox
    assert done.returncode == 0, done.stderr


def no_event_is_lost(running: Guest) -> None:
    done = peek("trace", *running.way, "--seconds", str(TRACE_S), "--format", "jsonl")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    print(f"{len(events):,} events; {done.stderr.splitlines()[-1]}")
    assert re.search(r"\b0 lost", done.stderr), done.stderr
    awake = {one["pid"] for one in events if one["comm"] == "threads"}
    assert len(awake) >= 20, "the threads that wake up"


def resets_are_followed(running: Guest, folder: Path, resets: int) -> None:
    log, boots = folder / "top", [running.say(BOOT)]
    argv = [COMMAND, "peek", "top", "--json", *running.way]
    with (
        log.open("w") as shown,
        subprocess.Popen(argv, stdout=shown, stderr=subprocess.PIPE, text=True) as top,
        recording(running.way, folder / "resets") as record,
    ):
        assert wait_until(lambda: log.stat().st_size)
        for number in range(2, resets + 2):
            with Monitor(running.monitor) as monitor:
                monitor.reset()
            meta = folder / f"resets/boot-{number}/meta.json"
            assert wait_until(lambda one=meta: one.exists() or record.poll() is not None)
            mark = f'"boot": {number}, "user'
            assert wait_until(lambda one=mark: one in log.read_text() or top.poll() is not None)
            boots.append(running.say(BOOT))
        for one in (record, top):
            one.terminate()
        said, noted = record.communicate(timeout=LIMIT_S)
        assert f"samples of {resets + 1} boots" in said, said + noted
        _, noted = top.communicate(timeout=LIMIT_S)
        assert top.returncode == 0, noted
    assert len(set(boots)) == resets + 1
    seconds = [json.loads(line) for line in log.read_text().splitlines()]
    assert sorted({one["boot"] for one in seconds}) == list(range(1, resets + 2))
    assert sum(bool(one.get("restarted")) for one in seconds) == resets
    parts = Recording.open(folder / "resets").boots()
    assert len(parts) == resets + 1 and not any(one.problems for one in parts)
    endings = [one.end["ending"] for one in parts if one.end is not None]
    assert endings[:-1] == ["restart"] * resets and len(endings) == len(parts)
    print(f"{resets} of {resets} resets were followed")
