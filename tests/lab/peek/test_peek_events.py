# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek trace` on a guest that does what is known: each event is found once, in order.

One VM: the guest reads blocks of sizes that nobody else reads, turns events off, asks for places
that do not exist, turns others on, and ends. What is in its memory then is traced as well.
"""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from tests.lab.command import COMMAND, LIMIT_S
from tests.lab.peek.watched_guest import peek
from trapless.vm import lab

pytestmark = [pytest.mark.outer_kernels, pytest.mark.timeout(3 * LIMIT_S)]

SIZES, TIMES = range(5001, 5041), 3
PLACES = (
    "sched_switch,sched_process_exec,sched_update_nr_running_tp,sys_enter,sys_exit,softirq_entry,"
    "softirq_exit,local_timer_entry,local_timer_exit,vfs_read:file=di:count=dx:back=0x0(sp)"
)
# The last is what the module itself asks for the time: an event inside the writing of another.
LATER = (
    "sched_switch,sched_process_exec,sys_enter,sys_exit,page_fault_user,schedule+0,"
    "ktime_get_mono_fast_ns"
)
GUEST = f"""
cd /sys/module/trapless/parameters
echo ready
read traced
for size in $(seq {SIZES[0]} {SIZES[-1]}); do
    dd if=/dev/zero of=/dev/null bs=$size count={TIMES} 2>/dev/null
done
sleep 1
echo 0 >probes
for words in no_such_place vfs_read:zz vfs_read+1 asm_exc_nmi sys_enter,sys_enter ,; do
    echo $words >events
    echo 8 2>/dev/null >probes && echo accepted
done
cat probes
echo {LATER} >events
echo 8 >probes
ls / >/dev/null
echo over
"""


def trace(
    *arguments: str | Path, on_first: Callable[[], object] = lambda: None
) -> subprocess.CompletedProcess[str]:
    """Trace to the end; `on_first` is called when the first event was written."""
    argv = [COMMAND, "peek", "trace", *map(str, arguments)]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        first = process.stdout.readline()
        on_first()
        rest = process.stdout.read()
        status = process.wait()
        errors.seek(0)
        return subprocess.CompletedProcess(argv, status, first + rest, errors.read())


def rows(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def guest(tmp_path, kernel):
    """(RAM file, what the guest says line by line, its end, and how it is told to go on)."""
    ram, lines, results = tmp_path / "ram", queue.Queue(), []
    theirs, ours = os.pipe()

    def hear(piece: bytes) -> None:
        for line in piece.decode().split():
            lines.put(line)

    def run() -> None:
        results.append(lab.run(config, ["sh", "-c", GUEST], stdin=theirs, sink=hear))

    config = lab.LabConfig(
        kernel=kernel,
        cpus=2,
        memory="256M",
        module_parameters=f"probes=8 events={PLACES}",
        thread_single=True,  # the emulator runs into probes that come and go otherwise
        shared_memory=ram,
    )
    thread = threading.Thread(target=run)
    thread.start()
    yield ram, lines, lambda: (thread.join(), results[0])[1], lambda: os.write(ours, b"\n")
    os.close(ours)
    thread.join()
    os.close(theirs)


def test_known_events_are_found_once_and_in_order(kernel, guest, tmp_path):
    ram, lines, result, go_on = guest
    assert lines.get(timeout=LIMIT_S) == "ready"
    live = trace("--ram", ram, "--backlog", "--format", "jsonl", on_first=go_on)
    assert live.returncode == 0, live.stderr
    assert "0 lost (events were switched off)" in live.stderr
    found = rows(live.stdout)

    times = [row["t_ns"] for row in found]
    assert times == sorted(times)
    assert {row["cpu"] for row in found} == {0, 1}
    reads = [row for row in found if row["event"] == "vfs_read"]
    planted = [row for row in reads if row["values"]["count"] in SIZES]
    expected = [size for size in SIZES for _ in range(TIMES)]
    assert [row["values"]["count"] for row in planted] == expected
    assert len({row["pid"] for row in planted}) == len(SIZES)
    assert {row["comm"] for row in planted} == {"dd"}
    assert len({row["values"]["back"] for row in planted}) == 1, "one function calls it"
    calls = [row for row in found if row["event"] == "sys_exit" and row["comm"] == "dd"]
    sizes = [row["values"]["result"] for row in calls if row["values"]["call"] == "read"]
    assert [size for size in sizes if size in SIZES] == expected
    assert_switches_fit(found)

    assert lines.get(timeout=LIMIT_S) == "0", "a place that there is not was accepted"
    assert lines.get(timeout=LIMIT_S) == "over"
    log = result().kernel_log
    for word in ("no_such_place", "vfs_read:zz", "vfs_read+1", "asm_exc_nmi", "sys_enter"):
        assert re.search(rf"events: '{re.escape(word)}", log), word
    assert "no place is chosen" in log
    assert_last_events_are_in_dead_memory(ram, tmp_path / "trace.pftrace")


def assert_switches_fit(found: list[dict]) -> None:
    """Who leaves a CPU is who came there last."""
    running: dict[int, int] = {}
    for row in found:
        if row["event"] == "sched_switch":
            assert running.get(row["cpu"], row["values"]["prev"]) == row["values"]["prev"]
            running[row["cpu"]] = row["values"]["next"]
    assert len(running) == 2


def assert_last_events_are_in_dead_memory(ram: Path, output: Path) -> None:
    dead = peek("trace", "--ram", ram, "-o", output)
    assert dead.returncode == 0, dead.stderr
    assert "(the machine does not run)" in dead.stderr
    assert re.search(r"\b[1-9][\d,]* not recorded inside others", dead.stderr), dead.stderr
    packets = pb.Trace.FromString(output.read_bytes()).packet
    events = [event for packet in packets for event in packet.ftrace_events.event]
    assert {event.WhichOneof("event") for event in events} >= {"sched_switch", "sys_enter"}
    names = [task.name for packet in packets for task in packet.process_tree.threads]
    assert "ls" in names
    instants = {packet.track_event.name for packet in packets if packet.HasField("track_event")}
    assert instants >= {"sched_process_exec", "page_fault_user", "schedule+0"}
