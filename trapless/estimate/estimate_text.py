# SPDX-License-Identifier: GPL-2.0-only
"""An estimate as people read it, and as programs do. It owns words and columns, and no sum."""

from __future__ import annotations

from typing import Any

from trapless.estimate.estimated_machine import HOT, Machine, loop_text
from trapless.estimate.sums import DIRECTORY_N, REQUEST_N, Estimate, Value

SHOWN = (1, 8, 32, 128)
WHAT = (
    "An estimate, and no measurement of the module: plain calls and traps are this kernel's own,",
    "measured; the module's loop ran in user space, with handlers that do nothing. What batches do",
    "to caches is not in it. The module itself: trapless lab, trapless evaluate.",
)


def lines(estimate: Estimate, machine: Machine) -> list[str]:
    """The whole report."""
    return [
        *WHAT,
        "",
        *_machine(estimate, machine),
        "",
        *_prices(estimate, machine),
        "",
        *_calls(estimate),
        "",
        *_mixes(estimate, machine),
        "",
        *_directory(estimate),
        "",
        *_beside(estimate),
    ]


def _machine(estimate: Estimate, machine: Machine) -> list[str]:
    where = f"in a virtual machine ({machine.hypervisor})" if machine.hypervisor else ""
    found = [
        f"processor    {machine.processor}, {machine.cpus} CPUs, "
        f"about {estimate.clock_ghz:.1f} GHz {where}".rstrip(),
        f"kernel       {machine.kernel}",
        f"calls by     {loop_text(machine.loop)}",
    ]
    found += [
        f"             {name}: {text.partition(';')[0]}"
        for name, text in machine.mitigations.items()
        if text != "Not affected"
    ]
    found.append(f"measured     {machine.date}")
    found.append(
        f"readings     {estimate.placements} processes on CPU {machine.cpu}, at least "
        f"{estimate.rounds} rounds each; halves differ by {estimate.worst_half:.1%} at most"
    )
    found += [f"not pinned   {what}" for what in machine.not_pinned]
    return found


def _prices(estimate: Estimate, machine: Machine) -> list[str]:
    own = estimate.request[machine.loop]
    clocks = estimate.trap.ns * estimate.clock_ghz
    least = f"{estimate.trap_least:.{estimate.trap.digits}f}"
    found = [
        f"a trap                     {_value(estimate.trap)}, "
        f"{clocks:.0f} clocks; the shortest reading {least} ns",
        f"a batched request alone    {_value(own)}",
    ]
    for loop, value in estimate.request.items():
        here = ", here" if loop == machine.loop else ""
        found.append(f"  with {loop_text(loop):<55} {value.text(6)} ns{here}")
    return found


def _value(value: Value) -> str:
    return f"{value.text(6)} ns ({_interval(value)})"


def _interval(value: Value) -> str:
    return f"{value.low:.{value.digits}f} to {value.high:.{value.digits}f}"


def _calls(estimate: Estimate) -> list[str]:
    columns = "".join(f"{f'N={n}':>8}" for n in SHOWN)
    found = [f"{'ns a call':<26}{'plain':>8}{columns}  {'saved at N=32':<22}saves from"]
    for call in estimate.calls:
        saved = call.saved[32]
        range_text = f"{saved.text()} ({_interval(saved)})"
        title = call.call.title + (" (2 calls)" if call.call.crossings == 2 else "")
        found.append(
            f"{title:<26}{call.plain.text(8)}"
            + "".join(call.batch[n].text(8) for n in SHOWN)
            + f"  {range_text:<21}{saved.ns / call.plain.ns:4.0%}"
            + f"{f'N={call.break_even}' if call.break_even else 'never':>7}"
        )
    return found


MIX_TITLES = {
    "one": "one call 128 times",
    "files": "open, fstat, read, close",
    "statx": "statx of 128 files",
    "sockets": "recv and send",
    "random": "hot calls at random",
    "rare": "all calls at random",
}


def _mixes(estimate: Estimate, machine: Machine) -> list[str]:
    takes = "direct calls" if machine.loop.startswith(HOT) else "the table"
    found = [f"{f'ns a request, N={REQUEST_N}':<26}{'table':>8}{'directly':>10}   here: {takes}"]
    for mix, (table, directly) in estimate.mixes.items():
        found.append(f"{MIX_TITLES[mix]:<26}{table.text(8)}{directly.text(10)}")
    return found


def _directory(estimate: Estimate) -> list[str]:
    made = estimate.directory
    saved = f"{made.saved.ns:.0f} ({made.saved.low:.0f} to {made.saved.high:.0f})"
    return [
        f"{'ns an entry of a directory':<34}{'plain':>8}{'tl_scan':>10}  saved",
        f"{f'{DIRECTORY_N} names and attributes':<34}{made.plain.ns:8.0f}{made.compound.ns:10.0f}  "
        f"{saved:<21}{made.saved.ns / made.plain.ns:4.0%}",
    ]


def _beside(estimate: Estimate) -> list[str]:
    found = []
    for kind, values in estimate.uring.items():
        title = {"uring.nop": "io_uring, no operation", "uring.read": "io_uring, read of 1 B"}[kind]
        found.append(f"{title:<34}" + "".join(values[n].text(8) for n in SHOWN))
    if not estimate.uring:
        found.append(f"io_uring is not to be had here: {estimate.uring_absent}")
    least, most = estimate.supervisor_saved
    found += [
        "",
        f"Supervisor mode would save {least:.0f} to {most:.0f} ns of each call: its own path takes "
        f"{estimate.supervisor_path.text()} ns",
        f"(popfq {estimate.floors['popfq'].text()}), and the instruction syscall, which stays, at "
        "most half of a trap.",
    ]
    return found


def as_json(estimate: Estimate, machine: Machine) -> dict[str, Any]:
    """All figures, in nanoseconds, with the machine."""
    return {
        "kind": "estimate",
        "date": machine.date,
        "machine": {
            "processor": machine.processor,
            "cpus": machine.cpus,
            "cpu": machine.cpu,
            "clock_ghz": round(estimate.clock_ghz, 3),
            "kernel": machine.kernel,
            "hypervisor": machine.hypervisor,
            "governor": machine.governor,
            "mitigations": dict(machine.mitigations),
            "loop": machine.loop,
            "not_pinned": list(machine.not_pinned),
        },
        "placements": estimate.placements,
        "rounds": estimate.rounds,
        "halves_differ": round(estimate.worst_half, 4),
        "trap": {**estimate.trap.as_json(), "least": round(estimate.trap_least, 2)},
        "request": {
            "n": REQUEST_N,
            "ns": {loop: value.as_json() for loop, value in estimate.request.items()},
        },
        "mixes": {
            mix: {"table": table.as_json(), "directly": directly.as_json()}
            for mix, (table, directly) in estimate.mixes.items()
        },
        "calls": {
            call.call.subject: {
                "title": call.call.title,
                "crossings": call.call.crossings,
                "plain": {**call.plain.as_json(), "least": round(call.least, 2)},
                "batch": _by_n(call.batch),
                "saved": _by_n(call.saved),
                "break_even_n": call.break_even,
            }
            for call in estimate.calls
        },
        "directory": {
            "n": DIRECTORY_N,
            "plain": estimate.directory.plain.as_json(),
            "compound": estimate.directory.compound.as_json(),
            "saved": estimate.directory.saved.as_json(),
        },
        "int80": None
        if estimate.by_int is None
        else {"plain": estimate.by_int[0].as_json(), "saved": _by_n(estimate.by_int[1])},
        "floors": {name: value.as_json() for name, value in estimate.floors.items()},
        "uring": {kind: _by_n(values) for kind, values in estimate.uring.items()},
        "supervisor": {
            "path": estimate.supervisor_path.as_json(),
            "saved": dict(
                zip(("low", "high"), (round(v, 2) for v in estimate.supervisor_saved), strict=True)
            ),
        },
    }


def _by_n(values: dict[int, Value]) -> dict[str, dict[str, float]]:
    return {f"n{n}": value.as_json() for n, value in values.items()}
