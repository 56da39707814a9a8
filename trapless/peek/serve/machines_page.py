# SPDX-License-Identifier: GPL-2.0-only
"""Makes the page that shows all machines to a person: a line for each, with its course.

Owns what is shown and the drawing of the courses. The template escapes every value; text of a guest
stays GuestText until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jinja2

from trapless.peek.guest_text import GuestText
from trapless.peek.serve.inventory import Inventory
from trapless.peek.serve.observed_vm import ObservedVm, State
from trapless.peek.serve.tally import COURSE_SECONDS, Second

REFRESH_S = 5
WIDTH, HEIGHT = COURSE_SECONDS - 1, 24
UNITS = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))


@dataclass(frozen=True)
class Course:
    """One value of a machine over the last minutes, as a line. `now` has the last one as text."""

    name: str
    now: str
    path: str
    width: int = WIDTH
    height: int = HEIGHT


@dataclass(frozen=True)
class Line:
    """One machine."""

    title: str
    state: str
    about: GuestText | str
    reason: str
    courses: Sequence[Course]


def html(inventory: Inventory) -> str:
    """The page as it is now."""
    with inventory.settings.lock:
        lines = [_line(vm) for vm in sorted(inventory.vms, key=lambda vm: vm.title)]
    folder, recordings = inventory.settings.recordings, ""
    if folder is not None:
        recordings = f"Recordings take {_bytes(folder.bytes)} of {_bytes(folder.bytes_max)}."
        if folder.error:
            recordings += f" Recording pauses: {folder.error}."
    return _template().render(
        vms=lines,
        sampled=sum(line.state == State.SAMPLED for line in lines),
        rate=f"{1e9 / inventory.settings.interval_ns:,.0f}",
        seconds=COURSE_SECONDS,
        refresh_s=REFRESH_S,
        recordings=recordings,
        error=inventory.error,
    )


@cache
def _template() -> jinja2.Template:
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    strict = jinja2.StrictUndefined
    environment = jinja2.Environment(autoescape=True, loader=loader, undefined=strict)
    return environment.get_template("machines_page.html.j2")


def _line(vm: ObservedVm) -> Line:
    about = f"{vm.release or ''} {vm.found.kind}"
    if vm.found.pid:
        about += f", process {vm.found.pid}"
    if vm.reboots:
        about += f", {vm.reboots} reboot{'s' * (vm.reboots > 1)}"
    courses = _courses(list(vm.tally.course)) if vm.state is State.SAMPLED else ()
    return Line(vm.title, vm.state.value, about, vm.reason, courses)


def _courses(seconds: Sequence[Second]) -> list[Course]:
    if not seconds:
        return []
    busy = [one.busy for one in seconds]
    queue = [one.queue for one in seconds]
    courses = [
        Course("busy", _percent(busy[-1]), _path(busy, 1.0)),
        Course("run queue", f"{queue[-1]:.1f}", _path(queue, max(1.0, *queue))),
    ]
    disabled = [one.disabled for one in seconds]
    if disabled[-1] is not None:
        known = max(one for one in disabled if one is not None)
        top = max(0.05, known)
        courses.append(Course("interrupts off", _percent(disabled[-1]), _path(disabled, top)))
    else:
        lost = [one.lost for one in seconds]
        courses.append(Course("samples lost", _percent(lost[-1]), _path(lost, max(0.05, *lost))))
    return courses


def _percent(value: float | None) -> str:
    return "not known" if value is None else f"{100 * value:.1f}%"


def _path(values: Sequence[float | None], top: float) -> str:
    """The line of a course, the newest value at the right; it breaks where there is no value.

    >>> _path([0.0, None, 1.0, 0.5], 1.0)
    'M116,24.0M118,0.0L119,12.0'
    """
    words, pen = [], "M"
    for x, value in enumerate(values, COURSE_SECONDS - len(values)):
        if value is None:
            pen = "M"
            continue
        words.append(f"{pen}{x},{HEIGHT - HEIGHT * min(value / top, 1.0):.1f}")
        pen = "L"
    return "".join(words)


def _bytes(count: int) -> str:
    for size, unit in UNITS:
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
