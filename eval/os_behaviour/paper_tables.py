# SPDX-License-Identifier: GPL-2.0-only
"""Makes the tables and figures of os-behaviour: the paper's Tables 1 to 4 and Fig. 5 beside ours.

This file owns the wording and which figures stand side by side. analysis.py computes the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eval.os_behaviour import analysis
from trapless.experiments.collection import Row
from trapless.experiments.experiment import Raw
from trapless.peek.sampling.tier0 import Part
from trapless.report.figures import Figure, Mark, Series, Table, bars

PART_NAMES = {
    Part.USER: "user",
    Part.TOP_HALF: "top half",
    Part.BOTTOM_HALF: "bottom half",
    Part.KERNEL: "other kernel",
    Part.IDLE: "idle",
}
ENDLESS = ("nop", "httpd")
ROUTINES_SHOWN = 12
PAPER_ROUTINES: Mapping[str, tuple[float, tuple[str, ...]]] = {
    "TH": (46.3, (analysis.TOP_HALVES,)),
    "schedule": (23.8, ("__schedule", "schedule")),
    "kmem_cache_free": (7.0, ("kmem_cache_free",)),
    "kfree": (4.1, ("kfree", "__slab_free")),
    "kmem_cache_alloc": (3.9, ("___slab_alloc", "kmem_cache_alloc")),
    "kmalloc": (2.2, ("__kmalloc",)),
    "do_sigaction": (1.9, ("do_sigaction",)),
    "__get_free_pages": (1.6, ("rmqueue", "get_page_from_freelist")),
    "do_bottom_half": (1.5, ("do_softirq", "handle_softirqs", "__do_softirq")),
    "mod_timer": (1.1, ("lock_timer_base", "mod_timer", "__mod_timer")),
    "do_gettimeofday": (1.0, ("do_gettimeofday",)),
}
"""Table 3 of the paper: its routine, percent of the disabled time, and what does that work now."""
PAPER_RUNS: Mapping[str, tuple[str, str]] = {
    analysis.TOP_HALVES: ("1,110,042", "2.3"),  # IRQ0x05_interrupt
    "__schedule": ("255,070", "6.9"),
}
"""Table 4, of 100,000 requests."""


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    results = analysis.loads_of(raw.rows)
    httpd = results["httpd"]
    return (
        table_shares(results, analysis.machine_of(str(raw.meta.get("accelerator")))),
        figure_httpd(httpd),
        table_witness(results),
        table_off(results),
        table_routines(httpd),
        table_times(httpd),
        figure_tasks(httpd),
        figure_replies(httpd),
        table_samples(results, raw.rows),
    )


def table_shares(results: Mapping[str, analysis.ObservedLoad], machine: str) -> Table:
    rows = [
        (
            text,
            *(
                f"{results[name].percent(part):.1f} ({analysis.PAPER_SHARES[part][place]:.1f})"
                for place, name in enumerate(analysis.LOADS)
            ),
        )
        for part, text in PART_NAMES.items()
    ]
    kernel = [
        sum(analysis.PAPER_SHARES[part][place] for part in analysis.KERNEL_PARTS)
        for place in range(len(analysis.LOADS))
    ]
    sums = (
        f"{results[name].kernel:.1f} ({published:.1f})"
        for name, published in zip(analysis.LOADS, kernel, strict=True)
    )
    return Table(
        id="shares",
        title="Table 1: where the time went, % (in brackets: the paper)",
        columns=("", *analysis.LOADS),
        rows=(*rows, ("kernel, all of it", *sums)),
        caption=f"{machine} What interrupts an idle processor is a top or bottom half.",
        kind="measured",
    )


def table_witness(results: Mapping[str, analysis.ObservedLoad]) -> Table:
    rows = []
    for name, load in results.items():
        sampled_ = {
            "user": load.percent(Part.USER),
            "kernel": load.kernel,
            "idle": load.percent(Part.IDLE),
        }
        both = ((value, load.accounted(what)) for what, value in sampled_.items())
        shares = (f"{share:.1f}" for pair in both for share in pair)
        rows.append((name, *shares, f"{sum(load.ticks.values()):,}"))
    return Table(
        id="witness",
        title="The same by the guest's own account, %",
        columns=(
            "load",
            *(
                f"{part}, {by}"
                for part in ("user", "kernel", "idle")
                for by in ("samples", "account")
            ),
            "ticks",
        ),
        rows=tuple(rows),
        caption="The guest's kernel accounts each tick of its clock to what the tick interrupts "
        "(/proc/stat). It cannot see what it does with interrupts disabled, nor what a tick "
        "regularly comes before or after; of httpd it has the beginning and the end, too.",
        kind="measured",
    )


def figure_httpd(load: analysis.ObservedLoad) -> Figure:
    place = analysis.LOADS.index(load.name)
    groups = {
        text: {"ours": load.percent(part), "paper": analysis.PAPER_SHARES[part][place]}
        for part, text in PART_NAMES.items()
    }
    return Figure(
        id="shares-httpd",
        title="httpd: where the time went, beside the paper's",
        x_label="",
        y_label="% of the time",
        series=bars(groups, {"ours": "here", "paper": "paper: Pentium III"}),
        names=tuple(PART_NAMES.values()),
        caption="Apache with a process for each request under way, more requests than it can "
        "serve, over an emulated network card.",
        kind="measured",
    )


def table_off(results: Mapping[str, analysis.ObservedLoad]) -> Table:
    off = [results[name].off for name in analysis.LOADS]
    pairs = list(zip(off, analysis.PAPER_OFF, strict=True))
    enabled = (f"{100 - ours:.1f} ({100 - published:.1f})" for ours, published in pairs)
    disabled = (f"{ours:.1f} ({published:.1f})" for ours, published in pairs)
    return Table(
        id="interrupts-off",
        title="Table 2: interrupts enabled and disabled, % of the time (in brackets: the paper)",
        columns=("", *analysis.LOADS),
        rows=(("enabled", *enabled), ("disabled", *disabled)),
        caption="An idle processor counts as enabled: its halt ends with the next interrupt.",
        kind="measured",
    )


def table_routines(load: analysis.ObservedLoad) -> Table:
    ours = {one.name: one for one in load.routines()}
    paper = {name: text for text, (_, names) in PAPER_ROUTINES.items() for name in names}
    largest = list(ours.values())[:ROUTINES_SHOWN]
    rows, listed = [], set()
    for one in largest:
        text = paper.get(one.name, "")
        percent = f"{PAPER_ROUTINES[text][0]:.1f}" if text and text not in listed else ""
        rows.append((one.name, f"{one.share:.1f}", text, percent))
        listed.add(text)
    for text, (percent_, names) in PAPER_ROUTINES.items():
        if text not in listed:
            now = max(names, key=lambda name: ours[name].share if name in ours else 0.0)
            share = ours[now].share if now in ours else 0.0
            rows.append((now, f"{share:.1f}", text, f"{percent_:.1f}"))
    return Table(
        id="routines",
        title="Table 3: routines that disable interrupts under httpd, % of the disabled time",
        columns=("routine", "%", "paper's routine", "paper, %"),
        rows=tuple(rows),
        caption=f"The {len(largest)} with the largest shares, then what does the work of the "
        "others of the paper's now (the time of day is read without the kernel). Top halves are "
        "begun disabled by the processor; entry from user mode is what comes before the first "
        "sti. What a lock function disabled is its caller's.",
        kind="measured",
    )


def table_times(load: analysis.ObservedLoad) -> Table:
    counted = [one for one in load.routines() if one.mean_us is not None]
    return Table(
        id="disabled-times",
        title="Table 4: how often interrupts were disabled under httpd, and for how long each time",
        columns=("routine", "runs", "mean, µs", "paper: runs", "mean, µs"),
        rows=tuple(
            (
                one.name,
                f"{one.runs:,}",
                f"{one.mean_us:.2f}",
                *PAPER_RUNS.get(one.name, ("", "")),
            )
            for one in counted[:ROUTINES_SHOWN]
        ),
        caption=f"{load.row['requests']['requests']:,} requests in {load.seconds:.0f} s; the "
        "paper's figures are of 100,000. Runs of top halves are the interrupts that the kernel "
        "counts, one every "
        f"{load.interrupt_interval_us:.0f} µs ({analysis.PAPER_INTERRUPTS_US} in the paper); of "
        "other routines the times that a cli of their own ran. Those that only take locks have "
        "none. Mean: the share of samples, times the time, by the runs.",
        kind="measured",
    )


def figure_tasks(load: analysis.ObservedLoad) -> Figure:
    course = load.row["course"]
    x = tuple(course["seconds"])
    return Figure(
        id="httpd-tasks",
        title="Processes of the server and run queue over time (Fig. 5)",
        x_label="seconds under load",
        y_label="processes",
        series=(
            Series("tasks", x, tuple(course["tasks"])),
            Series("runq, longest", x, tuple(map(float, course["queue_max"]))),
            Series("runq, mean", x, tuple(course["queue"])),
        ),
        caption="tasks: processes more than just before the load. The paper's run queue reached "
        f"{analysis.PAPER_QUEUE_MAX}, and both grew.",
        kind="measured",
        marks=(Mark(analysis.PAPER_QUEUE_MAX, "paper: longest runq"),),
    )


def figure_replies(load: analysis.ObservedLoad) -> Figure:
    replies: Sequence[int] = load.row["requests"]["each_second"][:-1]  # the last is cut short
    return Figure(
        id="httpd-replies",
        title="Replies of the server, each second",
        x_label="seconds under load",
        y_label="replies a second",
        series=(
            Series(
                "replies",
                tuple(second + 0.5 for second in range(len(replies))),
                tuple(map(float, replies)),
            ),
        ),
        caption="Every one is the file, byte for byte. The paper notes that its throughput fell "
        "as the processes grew.",
        kind="measured",
    )


def table_samples(results: Mapping[str, analysis.ObservedLoad], rows: Sequence[Row]) -> Table:
    versions: Row = next((row["versions"] for row in rows if "versions" in row), {})
    return Table(
        id="samples",
        title="How well each load was sampled",
        columns=(
            "load",
            "seconds",
            "done",
            "samples",
            "slots lost",
            "left out",
            "late",
            "lag, 99%",
        ),
        rows=tuple(sampled(results[name]) for name in analysis.LOADS),
        caption="One sample each 100 µs, as in the paper. Left out: torn, or of a virtual "
        "processor that this host kept from running for 10 ms. Late: by more than half an "
        f"interval; such a sample is as good as others. In part: ended when its time was over. "
        f"{built(versions)}",
        kind="measured",
    )


def sampled(load: analysis.ObservedLoad) -> tuple[str, ...]:
    row = load.row
    lost = 1 - row["rows"] / max(row["slots"], 1)
    return (
        load.name,
        f"{load.seconds:.1f}",
        "has no end" if load.name in ENDLESS else "yes" if load.ended else "in part",
        f"{row['samples']:,}",
        f"{lost:.2%}",
        f"{row['left_out'] / max(row['rows'], 1):.2%}",
        f"{row['flags']['late'] / max(row['rows'], 1):.2%}",
        f"{row['lag_us_p99']:.0f} µs",
    )


def built(versions: Row) -> str:
    """Which programs the loads were, where that is on record."""
    words = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return f"Debian's {words}." if words else ""
