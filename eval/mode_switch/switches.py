# SPDX-License-Identifier: GPL-2.0-only
"""Makes metrics, claims and figures of switches: what they cost, and when they take effect.

This file owns Fig. 8 of the paper and the delay of a switch from outside. The rows come with those
of part_calls.py, from the same boots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eval.mode_switch import mode_costs
from trapless.experiments import repeated_counts
from trapless.experiments.collection import Row
from trapless.report.figures import Figure, Table, bars
from trapless.results import claims
from trapless.results.result_file import Claim, Metric

MODES = ("supervisor", "user")
SIDES = ("self", "outside")


def switch_costs(rows: Sequence[Row]) -> dict[tuple[str, str], list[int]]:
    """(mode, asking process) -> instructions of the request, repeats of all boots."""
    repeats: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if "switch" in row:
            repeats.setdefault((row["switch"], row["from"]), []).append(row["value"])
    return repeats


def delays(rows: Sequence[Row]) -> dict[tuple[str, str], dict[int, int]]:
    """(mode, what the target does) -> calls that the switch was late -> how often."""
    histograms: dict[tuple[str, str], dict[int, int]] = {}
    for row in rows:
        if "delay" in row:
            by_delay = histograms.setdefault((row["to"], row["target"]), {})
            by_delay[row["delay"]] = by_delay.get(row["delay"], 0) + row["switches"]
    return histograms


def metrics(rows: Sequence[Row]) -> dict[str, Metric]:
    metrics = {
        f"switch.{mode}.{side}.instructions": repeated_counts.metric(values, "instructions")
        for (mode, side), values in switch_costs(rows).items()
    }
    return metrics | delay_metrics(rows)


def delay_metrics(rows: Sequence[Row]) -> dict[str, Metric]:
    return {
        f"delay.{mode}.{target}.calls": Metric(
            max(counts), "calls", "counted", sum(counts.values()), max(counts) - min(counts)
        )
        for (mode, target), counts in delays(rows).items()
    }


def claims_of(rows: Sequence[Row], getpid: float) -> tuple[Claim, Claim]:
    return claim_switch(rows, getpid), claim_delay(rows)


def claim_switch(rows: Sequence[Row], getpid: float) -> Claim:
    requests = switch_costs(rows)
    if not {(mode, "self") for mode in MODES} <= requests.keys():
        return claims.not_run("dms-switch", mode_costs.NOT_OFFERED)
    to, back = (min(requests[mode, "self"]) for mode in MODES)
    nothing = min(requests["none", "self"])
    ours = f"{to:,} and {back:,} instructions, a getpid {getpid:.0f}"
    why = (
        "The paper adds a call of its own to the kernel, which sets a flag and a register's "
        f"saved value. Here an ioctl is the way to the module ({nothing} instructions for one "
        "that asks for nothing), and a switch checks who asks for whom, goes through the "
        "kernel's list of work at the thread's own return, and sets a processor up. "
        f"After {to / (getpid / 2):.0f} calls or so it is paid back."
    )
    return claims.judge(
        "dms-switch", ours, {"the longer switch, in getpids,": max(to, back) / getpid}, why=why
    )


def claim_delay(rows: Sequence[Row]) -> Claim:
    histograms = delays(rows)
    if not histograms:
        return claims.not_run("dms-delay", mode_costs.NOT_OFFERED)
    worst = max(max(counts) for counts in histograms.values())
    late = sum(n for counts in histograms.values() for delay, n in counts.items() if delay)
    switches = sum(n for counts in histograms.values() for n in counts.values())
    ours = (
        f"in {switches:,} switches the target began {worst} more call{'s' * (worst != 1)} at most; "
        f"in {switches - late:,} of them none"
    )
    why = "Some calls begun after the request still ended in the old mode."
    return claims.judge("dms-delay", ours, {"calls begun meanwhile": worst}, why=why)


def reach_rows(rows: Sequence[Row]) -> list[tuple[str, str, str, str]]:
    histograms = delays(rows)
    if not histograms:
        return []
    worst = max(max(counts) for counts in histograms.values())
    return [
        (
            "a switch from outside takes effect, calls of the target late",
            str(worst),
            "1",
            "yes" if worst <= 1 else "no",
        )
    ]


def figures(
    rows: Sequence[Row], calls: Mapping[mode_costs.Key, mode_costs.Cost]
) -> tuple[Figure | Table, ...]:
    requests = switch_costs(rows)
    if not requests:
        return ()
    trap = calls[mode_costs.Key("getpid", "static", mode_costs.ABSENT)]
    groups = {
        mode: {side: float(min(requests[mode, side])) for side in SIDES if (mode, side) in requests}
        for mode in MODES
    } | {
        "nothing": {"beside": float(min(requests["none", "self"]))},
        "trap": {"beside": trap.least},
    }
    return (
        Figure(
            id="fig8",
            title="What a switch costs who asks for it, as Fig. 8 of the paper",
            x_label="",
            y_label="instructions",
            series=bars(
                groups,
                {"beside": "beside it", "self": "of oneself", "outside": "of another process"},
            ),
            names=("to supervisor mode", "to user mode", "an empty ioctl", "a getpid by trap"),
            caption="The request to the module, from before it to after its return. Who switches "
            "itself has changed by then; another changes at the end of a call of its own.",
            kind="counted",
        ),
        delay_table(rows),
    )


def delay_table(rows: Sequence[Row]) -> Table:
    lines = []
    for (mode, target), counts in sorted(delays(rows).items()):
        switches = sum(counts.values())
        spread = ", ".join(f"{n:,} by {delay}" for delay, n in sorted(counts.items()))
        lines.append(
            (f"to {mode} mode, target {target}", f"{switches:,}", str(max(counts)), spread)
        )
    return Table(
        id="delay",
        title="After how many of its calls a process changes when another asks",
        columns=("switch", "times", "calls late at most", "all"),
        rows=tuple(lines),
        caption="Late are calls that the target began after the request had been made and that "
        "still ended in the old mode. Running: it makes calls without a pause, on the same CPU "
        "or on another. Asleep: it sleeps in a read meanwhile; that call was begun before.",
        kind="counted",
    )
