# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek serve` beside a real guest: it comes, is reset, has a process with a hostile name,
is stopped, and goes; the disk of the recordings is full meanwhile, and SIGTERM ends the daemon.

The daemon is the command as its users run it; what it says is read by Prometheus's own parser.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.lab.command import COMMAND, LIMIT_S, ROOT, wait_until
from tests.lab.peek.watched_guest import (
    GUEST_LIMIT_S,
    Guest,
    folder_of_memory,
    guest,
    peek,
    started_by,
)
from trapless.peek.guest_text import GuestText
from trapless.peek.rights import CAP_SYS_PTRACE
from trapless.peek.sampling.recording import Recording
from trapless.vm.qmp import Monitor

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1.2 * GUEST_LIMIT_S)]

HOSTILE = b'\x1b[2J<b>"}\n'
NAME = r"printf '\033[2J<b>\042}\n' >/proc/self/comm; while :; do :; done"
END_S = 30.0
INTERVAL_S = 0.01
BOUND = 16 << 20


class Daemon:
    """A daemon that serves. `log` is what it has said."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log

    def said(self) -> str:
        return self.log.read_text()

    def get(self, path: str) -> str:
        url = re.match(r"http://\S+?/", self.said())[0]
        with urllib.request.urlopen(url + path, timeout=LIMIT_S) as answer:
            return answer.read().decode()

    def value(self, name: str, **labels: str) -> float:
        """The sum of a metric's values with these labels; -1 where there are none."""
        found = [
            one.value
            for family in text_string_to_metric_families(self.get("metrics"))
            for one in family.samples
            if one.name == name and labels.items() <= one.labels.items()
        ]
        return sum(found) if found else -1.0

    def values(self, title: str) -> dict[str, float]:
        """What one scrape has of a machine: times by state, samples by kind."""
        values: dict[str, float] = {}
        for family in text_string_to_metric_families(self.get("metrics")):
            for one in family.samples:
                if one.labels.get("vm") == title and one.name.endswith("_total"):
                    name = one.name.removeprefix("trapless_vm_").removesuffix("_total")
                    key = f"{name} {one.labels.get('state', '')}".strip()
                    values[key] = values.get(key, 0.0) + one.value
        return values

    def family(self) -> list[int]:
        """All processes that it has started."""
        argv = ["ps", "-o", "pid=", "--ppid", str(self.process.pid)]
        said = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
        return [int(word) for word in said.split()]


@contextmanager
def daemon(folder: Path, *options: str | Path) -> Iterator[Daemon]:
    log = folder / "log"
    argv = [COMMAND, "peek", "serve", "--listen", "127.0.0.1:0", *map(str, options)]
    with log.open("wb") as said, subprocess.Popen(argv, stderr=said, cwd=ROOT) as process:
        try:
            running = Daemon(process, log)
            assert wait_until(lambda: "http://" in log.read_text() or process.poll() is not None)
            yield running
        finally:
            process.kill()


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system with little room."""
    disk = folder / "disk"
    disk.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", str(disk)]
    if subprocess.run(argv, capture_output=True, check=False).returncode:
        pytest.skip("a small file system takes the right to mount one")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_guest_is_served_from_its_start_to_its_end(tmp_path):
    with small_disk(tmp_path) as disk, folder_of_memory() as folder:
        options = ("--recordings", disk / "kept", "--recordings-size", str(BOUND))
        with daemon(tmp_path, "--vm", "pid-*", "--processes", "20", *options) as served:
            with guest(folder, cpus=2, shared_memory=None) as running:
                (machine,) = started_by(running.process.pid)
                title = f"pid-{machine.pid}"
                it_is_found_and_followed(served, running, title)
                its_names_are_harmless(served, running, title)
                a_full_disk_stops_recordings_alone(served, title, disk)
                a_guest_that_is_stopped_is_told(served, running, title)
            ended = {"vm": title, "state": "ended"}
            assert wait_until(lambda: served.value("trapless_vm_state", **ended) == 1)
            assert served.value("trapless_vm_up", vm=title) == 0
            it_ends_on_request(served)
        recordings_can_be_reported(disk / "kept" / title)


def it_is_found_and_followed(served: Daemon, running: Guest, title: str) -> None:
    assert wait_until(lambda: served.value("trapless_vm_up", vm=title) == 1), served.said()
    release = running.say("uname -r").strip()
    assert served.value("trapless_vm_info", vm=title, kernel=release, monitor="qemu") == 1
    assert wait_until(lambda: served.value("trapless_vm_processes", vm=title) > 30)
    boot = running.say("cat /proc/sys/kernel/random/boot_id")
    with Monitor(running.monitor) as monitor:
        monitor.reset()
    assert wait_until(lambda: served.value("trapless_vm_reboots_total", vm=title) == 1)
    assert wait_until(lambda: served.value("trapless_vm_up", vm=title) == 1)
    assert running.say("cat /proc/sys/kernel/random/boot_id") != boot
    assert f"{title} is restarting: it was restarted" in served.said()


def its_names_are_harmless(served: Daemon, running: Guest, title: str) -> None:
    """A process names itself, and is nearly all that runs."""
    running.say(f"({NAME}) & echo $! >/tmp/named")
    name = "trapless_vm_process_cpu_seconds_total"
    shown = str(GuestText(HOSTILE))
    assert wait_until(lambda: served.value(name, vm=title, process=shown) > 1), served.get(
        "metrics"
    )
    before = served.values(title)
    time.sleep(5)
    moved = {key: value - before.get(key, 0.0) for key, value in served.values(title).items()}
    total = sum(value for key, value in moved.items() if key.startswith("cpu_seconds"))
    slots = moved["taken_samples"] + moved["lost_samples"]
    assert total / 2 == pytest.approx(slots * INTERVAL_S, rel=0.1)  # two CPUs
    assert moved["cpu_seconds idle"] < 0.8 * total  # one of them runs the process
    page = served.get("")
    for text in (page, served.get("metrics"), served.said()):
        assert all(line.isprintable() for line in text.split("\n"))
    assert HOSTILE.decode()[4:-1] not in page and title in page and "<svg" in page
    running.say("kill $(cat /tmp/named)")
    may_trace = 0
    for pid in (served.process.pid, *served.family()):
        with suppress(OSError):  # ended meanwhile
            status = Path(f"/proc/{pid}/status").read_text()
            may_trace += int(re.search(r"CapEff:\s*(\w+)", status)[1], 16) >> CAP_SYS_PTRACE & 1
    assert may_trace == (os.geteuid() == 0)


def a_full_disk_stops_recordings_alone(served: Daemon, title: str, disk: Path) -> None:
    assert wait_until(lambda: list(disk.glob("kept/*/*/rows-000000.parquet")))
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    failing = "trapless_serve_recordings_failing"
    assert wait_until(lambda: served.value(failing) == 1)
    assert "recording pauses: " in served.said() and "No space left on device" in served.get("")
    before = served.value("trapless_vm_taken_samples_total", vm=title)
    assert wait_until(lambda: served.value("trapless_vm_taken_samples_total", vm=title) > before)
    assert served.get("healthz") == "ok\n"
    filler.unlink()
    assert wait_until(lambda: served.value(failing) == 0)
    assert "recording goes on" in served.said()


def a_guest_that_is_stopped_is_told(served: Daemon, running: Guest, title: str) -> None:
    with Monitor(running.monitor) as monitor, monitor.stopped():
        still = "trapless_vm_clock_still_seconds"
        assert wait_until(lambda: served.value(still, vm=title) > 10)
        assert served.value("trapless_vm_up", vm=title) == 1
    assert wait_until(lambda: served.value(still, vm=title) < 5)


def it_ends_on_request(served: Daemon) -> None:
    children = served.family()
    assert children
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(END_S) == 0
    assert "Traceback" not in served.said() and served.said().endswith("ended on request\n")
    # One that was killed may take a moment to go, on a busy machine.
    assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


def recordings_can_be_reported(folder: Path) -> None:
    """Each that was not cut by the full disk."""
    whole = 0
    for meta in sorted(folder.glob("*/meta.json")):
        saved = Recording.open(meta.parent)
        if saved.end is not None and saved.segments:
            assert saved.problems == ()
            done = peek("report", meta.parent)
            assert done.returncode == 0 and "Where each CPU was" in done.stdout, done.stderr
            whole += 1
    assert whole >= 1
