# SPDX-License-Identifier: GPL-2.0-only
"""Puts what was found of servers into metrics, claims, tables and a figure.

This file owns words and digits; findings.py owns the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eval.servers.counting import PROCESSORS
from eval.servers.findings import NEAR, Counted
from trapless.report.figures import Figure, Mark, Table, bars
from trapless.results import claims
from trapless.results.result_file import Claim, Metric
from trapless.stat.run_counts import MODES

SHORT = {"core-i7-9700k": "i7-9700k", "ryzen-5-3600": "ryzen-3600"}
"""The modelled processors in names of metrics."""

EVENTS = {
    "syscall": ("syscalls", "system calls"),
    "interrupt": ("interrupts", "interrupts and faults in its code"),
    "iret_kernel": ("interrupts-in-kernel", "interrupts and faults in the kernel"),
    "slept_out": ("sleeps", "sleeps"),
    "slept_within": ("sleeps-within", "sleeps, one of its own goes on"),
    "preempted": ("preemptions-on-exit", "preemptions on a call's exit"),
    "preempted_within": ("preemptions-in-call", "preemptions in a call"),
    "left_again": ("left-again", "of these, in a call that had left before"),
}
"""The counts for each request: the feature, its name in metrics, and words."""


def metrics(counted: Sequence[Counted]) -> Mapping[str, Metric]:
    """All figures, by name. Units of instructions are those of one request."""
    found: dict[str, Metric] = {}
    for one in counted:
        found |= _of_load(one)
        for processor in PROCESSORS if one.report else ():
            for part, share in one.shares(processor).items():
                name = f"{one.server}.{part}.{one.load}_{SHORT[processor]}.share"
                found[name] = Metric(round(share, 4), "share", "modelled")
    alike = [one for one in counted if one.did_the_same]
    near = sum(one.is_predicted for one in alike)
    found["servers.supervisor.predicted.count"] = Metric(near, "count", "counted")
    found["servers.supervisor.same-work.count"] = Metric(len(alike), "count", "counted")
    found["servers.supervisor.all.count"] = Metric(len(counted), "count", "counted")
    return found


def _of_load(one: Counted) -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    name = f"{one.server}.supervisor.{one.load}"
    found[f"{name}.predicted"] = Metric(round(one.predicted, 1), "predicted", "modelled")
    if one.did_the_same:
        each = [pair.saved / one.requests for pair in one.alike]
        spread = round(max(each) - min(each), 1)
        found[f"{name}.saved"] = Metric(
            round(one.saved.median, 1), "saved", "counted", len(each), spread
        )
    apart = [pair.calls_apart for pair in one.pairs]
    found[f"{name}.calls-apart"] = Metric(
        round(farthest(one), 4), "calls-apart", "counted", len(apart),
        round(max(apart) - min(apart), 4),
    )  # fmt: skip
    found[f"{one.server}.batch.{one.load}.saved-at-most"] = Metric(
        round(one.batch_saves, 1), "saved-at-most", "modelled"
    )
    for mode in MODES:
        for where, number in one.instructions(mode).items():
            unit = f"{where}-instructions"
            found[f"{one.server}.{mode}.{one.load}.{unit}"] = Metric(
                round(number, 1), unit, "counted", len(one.pairs)
            )
        for feature, (unit, _) in EVENTS.items():
            found[f"{one.server}.{mode}.{one.load}.{unit}"] = Metric(
                round(one.each(mode, feature), 4), unit, "counted", len(one.pairs)
            )
    return found


def farthest(one: Counted) -> float:
    """By which share of its calls the turn in supervisor mode made more, where most apart."""
    return max((pair.calls_apart for pair in one.pairs), key=abs)


def program_farthest(one: Counted) -> float:
    """By which share the program itself executed more in supervisor mode, where most apart."""
    return max((pair.program_apart for pair in one.alike or one.pairs), key=abs)


PUBLISHED = {
    "srv-flexsc-apache": "apache",
    "srv-flexsc-mysql": "mariadb",
    "srv-flexsc-bind": "bind",
    "srv-flexsc-memcached": "memcached",
    "srv-flexsc-nginx": "nginx",
    "srv-esca-nginx": "nginx",
    "srv-esca-lighttpd": "nginx",
    "srv-esca-redis": "redis",
    "srv-ub-redis": "redis",
    "srv-privbox-redis": "redis",
    "srv-ukl-redis": "redis",
    "srv-kml-mysql": "mariadb",
    "srv-anycall": "nginx",
}
"""The published gains, and the server whose figures stand beside each."""

NO_CLOCKS = (
    "Undecided: the published gain is one of time on a real processor. Counted instructions and "
    "modelled clocks cannot decide it. Workers (`tl_psc`), which are nearest to FlexSC, are not "
    "compared: a program has to be changed to use them, and these servers run as distributed."
)
STANDS_IN = {
    "srv-esca-lighttpd": " In place of lighttpd, which is not run here, stands nginx.",
    "srv-flexsc-mysql": " MariaDB stands in for MySQL.",
    "srv-kml-mysql": " MariaDB stands in for MySQL.",
}
"""What a note adds where another server was run than the one of the claim."""


def claims_of(counted: Sequence[Counted]) -> tuple[Claim, ...]:
    """Each published gain with what is found here; none is decided."""
    first: dict[str, Counted] = {}
    for one in counted:
        first.setdefault(one.server, one)
    return tuple(
        claims.undecided(
            claim,
            _ours(first[server]) if server in first else claims.NOT_RUN,
            NO_CLOCKS + STANDS_IN.get(claim, ""),
        )
        for claim, server in PUBLISHED.items()
    )


def _ours(one: Counted) -> str:
    saved = one.saved.median if one.did_the_same else one.predicted
    words = "saves" if one.did_the_same else "is predicted to save"
    share = saved / one.total
    parts = [f"{one.server}, {one.load}: supervisor mode {words} {share:.1%} of the instructions"]
    for processor in PROCESSORS if one.report else ():
        part = one.shares(processor)
        parts.append(
            f"of the clocks modelled for {SHORT[processor]} crossings cost {part['direct']:.1%} "
            f"directly and {part['pollution']:.0%} by pollution, and batches take away at most "
            f"{part['batch-at-most']:.0%}"
        )
    return "; ".join(parts)


def savings(counted: Sequence[Counted]) -> Table:
    """Predicted and counted savings."""
    return Table(
        id="servers-savings",
        title="What supervisor mode saves of a request: predicted, and counted",
        columns=(
            "server", "load", "instructions", "in the kernel", "predicted", "counted, median",
            "at 95%", "prediction off by", "saved of all", "calls apart", "user mode apart",
        ),
        rows=tuple(_savings_row(one) for one in counted),
        caption="Instructions a request of all the server's processes. Counted in pairs of turns, "
        "one by trap and one in supervisor mode, in one boot; predicted from the turns by trap and "
        "loops of the same boot. What is saved are instructions of the kernel; user mode apart: by "
        "how much more the program itself executed in supervisor mode, in the pair that is most "
        "apart. Where the turns of most pairs made other numbers of calls, they "
        "did different work: nothing is said of the saving. Versions: "
        + ", ".join(dict.fromkeys(one.version for one in counted))
        + ". Loads: "
        + "; ".join(dict.fromkeys(f"{one.load}, {one.words}" for one in counted))
        + ".",
        kind="counted",
    )  # fmt: skip


def _savings_row(one: Counted) -> tuple[str, ...]:
    by_trap = one.instructions("trap")
    apart = farthest(one)
    begin = (
        one.server,
        one.load,
        f"{one.total:,.0f}",
        f"{by_trap['kernel'] / one.total:.0%}",
        f"{one.predicted:,.0f}",
    )
    apart_too = f"{program_farthest(one):+.1%}"
    if not one.did_the_same:
        return (*begin, "different work", "-", "-", "-", f"{apart:+.1%}", apart_too)
    saved = one.saved
    return (
        *begin,
        f"{saved.median:,.0f}, n = {saved.n}",
        f"{saved.low:,.0f} to {saved.high:,.0f}",
        _off_by(one),
        f"{saved.median / one.total:.1%}",
        f"{apart:+.1%}",
        apart_too,
    )


def _off_by(one: Counted) -> str:
    """By how much the prediction is above what was saved."""
    return f"{one.error:+.0%}" if one.saved.median > 0 else "nothing saved"


def held(counted: Sequence[Counted]) -> Table:
    """For how many loads the prediction holds, with the reasons."""
    alike = [one for one in counted if one.did_the_same]
    near = sum(one.is_near for one in alike)
    within = sum(one.is_predicted for one in alike) - near
    numbers = {
        "all": len(counted),
        "did the same work in both modes": len(alike),
        f"predicted within {NEAR:.0%}": near,
        "farther off, within the pairs' interval": within,
        "outside of both": len(alike) - near - within,
    }
    return Table(
        id="servers-held",
        title="For how many loads the prediction holds",
        columns=("runs of a server under a load", "number"),
        rows=tuple((words, str(number)) for words, number in numbers.items()),
        caption="The last three are of those whose turns did the same work in most pairs.",
        kind="counted",
    )


def far(counted: Sequence[Counted]) -> Iterator[Table]:
    """Predictions that are farther off, one a row; nothing where there are none."""
    rows = tuple(
        (
            f"{one.server} {one.load}",
            f"{one.predicted:,.0f}",
            f"{one.saved.median:,.0f}",
            f"{one.saved.low:,.0f} to {one.saved.high:,.0f}",
            _off_by(one),
            "within" if one.is_predicted else "outside",
            f"{len(one.alike)} of {len(one.pairs)}",
            f"{one.own_turns_apart:,.0f}",
            "{} to {}".format(*one.sleeps),
        )
        for one in counted
        if one.did_the_same and not one.is_near
    )
    if not rows:
        return
    yield Table(
        id="servers-far",
        title=f"Predictions that are more than {NEAR:.0%} off",
        columns=(
            "server and load", "predicted", "counted, median", "pairs' interval", "off by",
            "the prediction is", "pairs", "turns by trap differ by", "sleeps of a turn",
        ),
        rows=rows,
        caption="Instructions of the kernel a request. Pairs: those whose turns did the same work, "
        "which the median and the interval are of. Turns by trap: the most instructions of one, "
        "less the fewest. Sleeps: the fewest and the most of a turn, of either mode.",
        kind="counted",
    )  # fmt: skip


def events(counted: Sequence[Counted]) -> Table:
    """Crossings by kind, sleeps and preemptions."""
    lines = []
    for one in counted:
        for mode in MODES:
            numbers = (f"{one.each(mode, feature):.2f}" for feature in EVENTS)
            lines.append((one.server, one.load, mode, *numbers))
    return Table(
        id="servers-events",
        title="What happens in a request",
        columns=("server", "load", "mode", *(words for _, words in EVENTS.values())),
        rows=tuple(lines),
        caption="Medians of the turns of each mode, a request.",
        kind="counted",
    )


def modelled(counted: Sequence[Counted]) -> Iterator[Figure | Table]:
    """The cost of crossings in modelled clocks; nothing where no run was modelled."""
    of_model = [one for one in counted if one.report]
    if not of_model:
        return
    lines, groups = [], {}
    for one in of_model:
        for processor in PROCESSORS:
            share = one.shares(processor)
            lines.append((one.server, one.load, processor, *(f"{s:.1%}" for s in share.values())))
        share = one.shares(PROCESSORS[0])
        groups[one.server] = {name: 100 * part for name, part in share.items()}
    names = {
        "direct": "directly",
        "pollution": "by pollution",
        "batch-at-most": "batches take away, at most",
    }
    yield Table(
        id="servers-clocks",
        title="Crossings in a server's modelled clocks",
        columns=("server", "load", "processor", *names.values()),
        rows=tuple(lines),
        caption="Shares of all modelled clocks, at the middle of all costs. By pollution: misses "
        "that would not be if user mode and the kernel had caches of their own; supervisor mode "
        "does not touch these. Batches: if each call waited for 31 others.",
        kind="modelled",
    )
    yield Figure(
        id="servers-shares",
        title=f"What crossings cost servers, modelled for {SHORT[PROCESSORS[0]]}",
        x_label="",
        y_label="% of the clocks",
        series=bars(groups, names),
        names=tuple(groups),
        kind="modelled",
    )


def predictions(counted: Sequence[Counted]) -> Figure:
    """Predicted and counted saving, side by side, of the first load of each server."""
    groups = {
        f"{one.server} {one.load}": {"predicted": 100 * (1 + one.error)}
        for one in counted
        if one.did_the_same and one.saved.median > 0
    }
    return Figure(
        id="servers-predicted",
        title="Supervisor mode's saving: predicted, in percent of what was counted",
        x_label="",
        y_label="instructions saved, counted = 100",
        series=bars(groups, {"predicted": "predicted from turns by trap"}),
        marks=(
            Mark(100 * (1 - NEAR), "20% less"),
            Mark(100.0, "counted"),
            Mark(100 * (1 + NEAR), "20% more"),
        ),
        names=tuple(groups),
        kind="counted",
    )
