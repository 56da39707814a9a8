# SPDX-License-Identifier: GPL-2.0-only
"""docs/peek.md names the keys of `--json` that the commands of peek write, and no others."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.peek.stacks.test_flame import recording  # noqa: F401 - a fixture
from tests.unit.peek.test_top import show
from tests.unit.peek.toy_kernel import ToyKernel
from trapless.peek.diagnosis import text
from trapless.peek.diagnosis.two_looks import Diagnosis
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.health.hang_causes import Cause, Look, Processor, Verdict
from trapless.peek.kernel.health.printk_ring import Record
from trapless.peek.kernel.health.processes import Process
from trapless.peek.kernel.kernel_stacks import CpuStack, ThreadStack
from trapless.peek.kernel.unwinding.frames import Ending, Stack
from trapless.peek.sampling import json_form
from trapless.peek.sampling.recording import Recording
from trapless.peek.sampling.sample_summary import summarise
from trapless.peek.stacks import flame

DOCUMENT = Path(__file__).resolve().parents[4] / "docs/peek.md"
BEGIN, END = "## JSON for programs\n", "\n## "
OF_ANY_NAME = {"shares", "wall_clock_shares", "entered_for"}
"""Objects whose keys are names of parts of time, which the document says in words."""
ROW = re.compile(r"^\| `(\w+)` \| (.*?)\| (.*) \|$", re.M)
WEB = GuestText(b"web")


def documented() -> dict[str, dict[str, set[str]]]:
    """The keys of each object, by the command and by the object's place in its output."""
    found: dict[str, dict[str, set[str]]] = {}
    section = DOCUMENT.read_text().split(BEGIN)[1].split(END)[0]
    for command, place, keys in ROW.findall(section):
        found.setdefault(command, {})[place.strip("` ")] = set(re.findall(r"`(\w+)`", keys))
    return found


def objects(value: Any, place: str = "") -> Iterator[tuple[str, set[str]]]:
    """Each object in a JSON value, by its place, with its keys."""
    if isinstance(value, list):
        for one in value:
            yield from objects(one, f"{place}[]")
    elif isinstance(value, dict):
        yield place, set(value)
        for key, one in value.items():
            if key not in OF_ANY_NAME:
                yield from objects(one, f"{place}.{key}".lstrip("."))


def of_why() -> Any:
    cpu = Processor(0, True, True, 0, "", 10**9, 0, 0.0, 0)
    verdict = Verdict(Cause.LOCK, "x", 20.0, "x")
    return text.diagnosis_in_json(
        Diagnosis("6.1.0", Look(95.0, 1, 12, (cpu,), ()), (verdict,), ("a note",), 1, "web")
    )


def of_ps() -> Any:
    return text.processes_in_json([Process(1, 1, "D", 2.0, 0, WEB, "do_poll", WEB)])


def of_stacks() -> Any:
    stack = Stack(Ending.USER, (1,))
    return text.stacks(
        [ThreadStack(5, 5, WEB, 2, stack)], [CpuStack(0, 6, 6, WEB, stack)], lambda _: WEB
    )


def of_dmesg() -> Any:
    return text.log_in_json(Record(1, 10**9, 6, (WEB,)))


OUTPUTS = {"why": of_why, "ps": of_ps, "stacks": of_stacks, "dmesg": of_dmesg}
"""What the commands print with --json; they add nothing to it."""
OTHERWISE = {
    "why": {"error", "vm"},
    "stacks": {"cpu", "state"},
    "top": {"restarted", "clock_still_s"},
}
"""Keys of which an object has one, or none."""


def check(command: str, *values: Any) -> None:
    """Assert that the document has all places of a command's outputs, and all keys."""
    wanted, found = documented()[command], dict[str, set[str]]()
    for place, keys in (one for value in values for one in objects(value)):
        found.setdefault(place, set()).update(keys)
    assert found.keys() == wanted.keys()
    for place, keys in found.items():
        assert keys <= wanted[place], f"{place} of {command}: {keys - wanted[place]} is not there"
        lost = wanted[place] - keys - OTHERWISE.get(command, set())
        assert not lost, f"{place} of {command} has no {lost}"


@pytest.mark.parametrize("command", OUTPUTS)
def test_keys_of_one_look_are_documented(command: str) -> None:
    check(command, json.loads(json.dumps(OUTPUTS[command]())))


def test_keys_of_top_and_report_are_documented(
    tmp_path: Path,
    own_cache: None,
    recording: Recording,  # noqa: F811 - the fixture
) -> None:
    stream = io.StringIO()
    show(ToyKernel(probes=3).save(tmp_path), stream, 1, as_json=True)
    second = json.loads(stream.getvalue().splitlines()[0])
    (boot,) = json.loads(json_form.report(recording, flame.in_json))["boots"]
    of_top = set(documented()["top"][""]) - {"time_ns", "boot"} - OTHERWISE["top"]
    assert of_top <= boot.keys()
    summary = summarise(recording)
    cpu = next(iter(summary.cpus.values()))
    cpu.judged, cpu.who = 1, Counter({1: 1})  # someone switched interrupts off
    check("top", second, json_form.sums(summary, 1000))
    check("report", {"boots": [{key: one for key, one in boot.items() if key not in of_top}]})


def test_people_see_programs_before_threads_of_the_kernel():
    """A machine has dozens of those. JSON keeps the order of process numbers."""
    none = GuestText(b"")
    rows = [Process(n, n, "S", 1.0, 0, WEB, "", none if n < 3 else WEB) for n in range(1, 5)]
    assert [line.split()[0] for line in text.processes(rows)] == ["PID", "3", "4", "1", "2"]
    assert [one["pid"] for one in text.processes_in_json(rows)] == [1, 2, 3, 4]
