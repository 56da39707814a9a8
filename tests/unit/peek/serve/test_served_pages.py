# SPDX-License-Identifier: GPL-2.0-only
"""What a scrape and the page of `trapless peek serve` have, on toy kernels in files: and what
happens when a machine goes, or has no kernel. One inventory serves all tests.
"""

from __future__ import annotations

import json
import re
import struct
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.peek.serve.serving import LIMIT_S, observing, until
from tests.unit.peek.toy_kernel import PERCPU_AT, RELEASE, ToyKernel
from trapless.cli import cli
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.sandbox.client import SandboxedTarget, open_target
from trapless.peek.serve import inventory as inventory_file
from trapless.peek.serve import metrics, observed_vm, phases
from trapless.peek.serve.inventory import Inventory
from trapless.peek.serve.observed_vm import ObservedVm
from trapless.peek.serve.web import Address, Server

HOSTILE = b'\x1b[2J<b>\n"\\'
INTERVAL_NS = 2_000_000
UNITS = {"up", "state", "cause", "info", "seconds", "tasks", "samples", "bytes", "failing"}
COUNTED = {"reboots", "failures", "switches", "processes", "threads", "vms", "errors"}
"""What a metric counts is its unit."""
RULES = Path(inventory_file.__file__).parent / "prometheus"


def hostile_kernel() -> ToyKernel:
    """A kernel whose first CPU runs a process with a name that is meant for terminals and pages."""
    kernel = ToyKernel(probes=3)
    server = kernel.symbols["toy_server"]
    kernel.put(kernel.physical(server) + 8, HOSTILE.ljust(16, b"\0"))
    kernel.put(PERCPU_AT + 0x68, struct.pack("<Q", server))
    return kernel


class Served:
    """An inventory of toys, and its port."""

    def __init__(self, inventory: Inventory, notes: list[str]) -> None:
        self.inventory, self.notes = inventory, notes
        self.server = Server(Address("127.0.0.1", 0), inventory)

    def get(self, path: str, accept: str = "*/*") -> str:
        url = f"http://127.0.0.1:{self.server.address.port}{path}"
        request = urllib.request.Request(url, headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return answer.read().decode()

    def value(self, name: str, **labels: str) -> float:
        """The sum of a metric's values with these labels."""
        return self.scrape()(name, **labels)

    def scrape(self) -> Callable[..., float]:
        """As value(), of one moment for all that is asked."""
        families = list(text_string_to_metric_families(self.get("/metrics")))
        return lambda name, **labels: sum(
            one.value
            for family in families
            for one in family.samples
            if one.name == name and labels.items() <= one.labels.items()
        )

    def vm(self, title: str) -> ObservedVm:
        (found,) = (one for one in self.inventory.vms if one.title == title)
        return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    ToyKernel().save(folder, "plain")
    hostile_kernel().save(folder, "hostile")
    (folder / "empty").write_bytes(bytes(1 << 20))
    return folder


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAPLESS_CACHE", str(folder / "cache"))
        patch.setattr(phases, "LOOK_S", 0.1)
        patch.setattr(inventory_file, "FIND_S", 0.05)
        patch.setattr(inventory_file, "PACE_S", 0.02)
        notes: list[str] = []
        files = [folder / name for name in ("plain", "hostile", "empty", "later")]
        others = {"interval_ns": INTERVAL_NS, "names_max": 2, "note": notes.append}
        with observing(*files, **others) as inventory:
            made = Served(inventory, notes)
            made.server.start()
            try:
                until(lambda: made.value("trapless_vm_process_cpu_seconds_total", vm="hostile"))
                until(lambda: made.value("trapless_vm_taken_samples_total", vm="plain") > 50)
                until(lambda: made.value("trapless_vm_failures_total", vm="empty"))
                yield made
            finally:
                made.server.stop()


@pytest.mark.slow
def test_a_scrape_is_what_the_official_parsers_read(served):
    text = served.get("/metrics")
    old = {one.name: one for one in text_string_to_metric_families(text)}
    accept = "application/openmetrics-text; version=1.0.0"
    new = {one.name: one for one in openmetrics.text_string_to_metric_families(
        served.get("/metrics", accept)
    )}  # fmt: skip
    ours = {name for name in new if name.startswith("trapless_")}
    assert {family.name for family in metrics.FAMILIES} <= ours
    assert "process_cpu_seconds" in new and "process_resident_memory_bytes" in new
    for name in ours:
        assert name.rpartition("_")[2] in UNITS | COUNTED, name
        assert new[name].documentation and new[name].type in ("counter", "gauge"), name
        assert old[name].documentation == new[name].documentation


def test_every_second_of_a_cpu_is_in_one_state(served):
    value = served.scrape()
    slots = value("trapless_vm_taken_samples_total", vm="plain")
    states = {
        state: value("trapless_vm_cpu_seconds_total", vm="plain", cpu="0", state=state)
        for state in ("idle", "unseen", "process", "kernel", "user", "top_half", "bottom_half")
    }
    assert states["idle"] >= 0.9 * slots * INTERVAL_NS / 1e9
    assert states["idle"] + states["unseen"] == pytest.approx(sum(states.values()))
    queue = value("trapless_vm_run_queue_task_seconds_total", vm="plain", cpu="1")
    busy = value("trapless_vm_cpu_seconds_total", vm="plain", cpu="1", state="bottom_half")
    assert busy and queue / busy == pytest.approx(4, rel=0.2)
    assert served.value("trapless_vm_run_queue_longest_tasks", vm="plain") == 4


def test_what_is_not_known_is_not_said(served):
    assert served.value("trapless_vm_interrupts_judged_seconds_total", vm="hostile") > 0
    text = served.get("/metrics")
    assert not re.search(r'^trapless_vm_interrupts_\w+{[^}]*vm="plain"', text, re.M)
    assert not re.search(r'^trapless_vm_clock_still_seconds{[^}]*vm="empty"', text, re.M)


def test_text_of_a_guest_is_bounded_and_harmless(served):
    shown = str(GuestText(HOSTILE))
    assert shown.isprintable()
    found = {
        one.labels["process"]
        for family in text_string_to_metric_families(served.get("/metrics"))
        for one in family.samples
        if one.name == "trapless_vm_process_cpu_seconds_total" and one.labels["vm"] == "hostile"
    }
    assert found == {shown}
    page = served.get("/")
    assert "\x1b" not in page and "<b>\n" not in page
    assert metrics.label(GuestText(b"x" * 500)) == "x" * metrics.LABEL_CHARS_MAX


def test_a_resolver_rests_while_its_kernel_is_sampled(served):
    kernel = served.vm("plain").phase._opened.kernel
    assert not kernel._resolver.runs()
    before = served.value("trapless_vm_taken_samples_total", vm="plain")
    until(lambda: served.value("trapless_vm_taken_samples_total", vm="plain") > before)
    assert not kernel._resolver.runs()
    assert str(kernel.name_of(kernel.symbol("schedule"))) == "schedule"  # it wakes up
    kernel.rest()


def test_memory_without_a_kernel_has_its_reason_on_the_page(served):
    assert served.value("trapless_vm_up", vm="empty") == 0
    assert served.value("trapless_vm_state", vm="empty", state="no_kernel") == 1
    page = served.get("/")
    assert "it has no VMCOREINFO" in page and "2 of 3 machines sampled" in page
    assert RELEASE in page and page.count("<svg") == 6 and "<script" not in page
    assert served.vm("empty").attempts._length_s > observed_vm.PAUSE_MIN_S


def test_there_are_three_pages(served):
    assert served.get("/healthz") == "ok\n"
    with pytest.raises(urllib.error.HTTPError) as error:
        served.get("/nothing")
    assert error.value.code == 404


def test_machines_come_and_go(served, folder):
    later = folder / "later"
    ToyKernel().save(later.parent, "later")
    until(lambda: served.value("trapless_vm_up", vm="later"))
    later.unlink()
    until(lambda: served.value("trapless_vm_state", vm="later", state="ended"))
    assert served.value("trapless_vm_up", vm="later") == 0
    assert [note for note in served.notes if note.startswith("later ")] == [
        f"later is sampled, Linux {RELEASE}",
        "later has ended",
    ]


def test_rules_and_dashboard_ask_for_what_there_is():
    totals = {metrics.COUNTER: "_total", metrics.GAUGE: ""}
    known = {family.name + totals[family.kind] for family in metrics.FAMILIES}
    known |= {"trapless_serve_recordings_failing", "trapless_why_hangs"}  # the latter by the timer
    for name in ("alerts.yml", "grafana.json"):
        asked = set(re.findall(r"\btrapless_\w+(?![\w:])", (RULES / name).read_text()))
        assert asked and asked <= known, asked - known
    panels = json.loads((RULES / "grafana.json").read_text())["panels"]
    assert len(panels) >= 6 and all(one["title"] for one in panels)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--recordings-size", "1G"), "--recordings-size is for the folder of --recordings"),
        (("--recordings", "x", "--recordings-size", "1M"), "1,048,576 bytes; recordings take 16M"),
        (("--cpu", "9999"), "--cpu: this host has no CPU 9999"),
    ],
)
def test_options_that_cannot_be_kept_are_refused(words, message):
    done = CliRunner().invoke(cli, ["peek", "serve", *words])
    assert done.exit_code == 2 and message in done.output


@pytest.mark.slow
def test_a_resolver_that_wakes_up_in_another_kernel_says_so(own_cache, tmp_path):
    path = ToyKernel().save(tmp_path)
    with open_target(path) as target:
        assert isinstance(target, SandboxedTarget)
        place = target.symbol("schedule")
        target.rest()
        assert str(target.name_of(place)) == "schedule"
        target.rest()
        ToyKernel(release="6.1.0-other", form="from-base").save(tmp_path)
        with pytest.raises(PeekError, match="another kernel runs in it by now"):
            target.name_of(place)
    with pytest.raises(PeekError):
        target.name_of(place)
