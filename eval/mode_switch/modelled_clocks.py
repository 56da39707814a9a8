# SPDX-License-Identifier: GPL-2.0-only
"""Models clocks of calls on named processors: metrics, the claims of Fig. 7, figures and tables.

This file owns which figures are modelled and what they say of the paper's ratios. The model and the
processors' tables are trapless/model/trap_clocks.py's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from eval.mode_switch import mode_costs
from trapless.experiments import fit
from trapless.model import processors, trap_clocks
from trapless.model.processors import Case, Processor
from trapless.model.trap_clocks import Counts, Estimate
from trapless.report.figures import Figure, Table, bars
from trapless.results import claims
from trapless.results.result_file import Claim, Metric

PAPER = "pentium-4"
PUBLISHED = ("getpid", "sbrk", "read", "write")
"""The calls of section 4.2 (1) of the paper, static link."""
SMALL = {"read": "read1", "write": "write1"}
"""The paper does not say how much it reads and writes: a byte is the least."""
FORM = "static"


def published(call: str) -> float:
    """The call's time in supervisor mode, trap = 1, as published."""
    return claims.limit(f"dms-{call}")


def cases() -> Iterator[tuple[Processor, Case]]:
    for processor in processors.with_traps().values():
        for case in processor.cases:
            yield processor, case


def reference(costs: Mapping[mode_costs.Key, mode_costs.Cost]) -> dict[str, Counts]:
    """Calls that published figures are about: as bare as those were."""
    return dict(mode_costs.counts(costs, "bare"))


def estimates(
    costs: Mapping[mode_costs.Key, mode_costs.Cost], calls: tuple[str, ...]
) -> Iterator[tuple[str, Processor, Case, float, Estimate]]:
    """Every call on every processor, with every number of clocks an instruction that can be."""
    counts, references = mode_costs.counts(costs, FORM), reference(costs)
    for call in calls:
        if call not in counts:
            continue
        for processor, case in cases():
            for cpi in processor.cpi:
                if trap_clocks.possible(case, cpi, references):
                    estimate = trap_clocks.estimate(case, cpi, counts[call], references)
                    yield call, processor, case, cpi, estimate


CALLS = ("getpid", "sbrk", "read", "write", "read1", "write1")


def metrics(costs: Mapping[mode_costs.Key, mode_costs.Cost]) -> dict[str, Metric]:
    metrics = {}
    for call, processor, case, cpi, estimate in estimates(costs, CALLS):
        what = trap_clocks.parameter(processor, case, cpi)
        ratio = estimate.ratio
        for mechanism, value, spread in (
            ("trap", estimate.trap.middle, estimate.trap),
            ("supervisor", estimate.supervisor, None),
        ):
            metrics[f"{call}.{mechanism}.{what}.clocks"] = Metric(
                round(value, 1),
                "clocks",
                "modelled",
                spread=round(spread.high - spread.low, 1) if spread else 0.0,
            )
        metrics[f"{call}.supervisor.{what}.clock-ratio"] = Metric(
            round(ratio.middle, 4),
            "clock-ratio",
            "modelled",
            spread=round(ratio.high - ratio.low, 4),
        )
    return metrics


def worst_ratio(costs: Mapping[mode_costs.Key, mode_costs.Cost], call: str) -> tuple[float, float]:
    """On the paper's processor: the largest ratio over all clocks an instruction, and up to how
    many of them it stays at or below the paper's."""
    processor = processors.with_traps()[PAPER]
    case = processor.cases[0]
    work = mode_costs.counts(costs, FORM)[SMALL.get(call, call)]
    ratio = trap_clocks.estimate(case, max(processor.cpi), work, {}).ratio.high
    return ratio, trap_clocks.largest_cpi(case, work, published(call))


def claims_of(
    costs: Mapping[mode_costs.Key, mode_costs.Cost],
    ratios: Mapping[tuple[str, str], fit.Summary],
) -> Iterator[Claim]:
    counts = mode_costs.counts(costs, FORM)
    for call in PUBLISHED:
        counted_call = SMALL.get(call, call)
        if counted_call not in counts:
            yield claims.not_run(f"dms-{call}", mode_costs.NOT_OFFERED)
            continue
        yield claim_ratio(call, costs, counts, ratios.get((counted_call, FORM)))


def claim_ratio(
    call: str,
    costs: Mapping[mode_costs.Key, mode_costs.Cost],
    counts: Mapping[str, Counts],
    measured: fit.Summary | None,
) -> Claim:
    processor = processors.with_traps()[PAPER]
    work = counts[SMALL.get(call, call)]
    cheap = trap_clocks.estimate(processor.cases[0], min(processor.cpi), work, {}).ratio.low
    worst, limit = worst_ratio(costs, call)
    clock = f"{fit.percent(measured)} of the emulator's time, " if measured else ""
    ours = (
        f"{work.supervisor / work.trap:.0%} of the instructions, {clock}{cheap:.0%} to "
        f"{worst:.0%} of the clocks modelled for the {processor.name}"
    )
    low, high = min(processor.cpi), max(processor.cpi)
    note = (
        "Undecided: the model takes the 800 to 900 clocks that a call saves from the paper, so it "
        "cannot confirm the paper. It says at how many clocks for each of the call's own "
        f"instructions, {low:g} to {high:g}, the claim would hold: up to {limit:.1f}."
    )
    if call in SMALL:
        page = counts[call]
        bound = trap_clocks.largest_cpi(processor.cases[0], page, published(call))
        note += (
            " That is with one byte a call, since the paper does not say how many. With a page, "
            f"whose {page.supervisor - work.supervisor:,.0f} further instructions are mostly "
            f"rounds of one that copies, it would hold up to {bound:.2f}."
        )
    return claims.undecided(f"dms-{call}", ours, note)


def reach_rows(
    costs: Mapping[mode_costs.Key, mode_costs.Cost],
) -> list[tuple[str, str, str, str]]:
    counts = mode_costs.counts(costs, FORM)
    rows = []
    for call in PUBLISHED:
        if SMALL.get(call, call) in counts:
            worst, limit = worst_ratio(costs, call)
            rows.append(
                (
                    f"{call}{' of 1 B' if call in SMALL else ''} modelled for the Pentium 4, "
                    "supervisor / trap",
                    f"{worst:.0%} or less",
                    f"{published(call):.0%}",
                    "yes"
                    if worst <= published(call)
                    else f"up to {limit:.1f} clocks an instruction",
                )
            )
    return rows


def figures(costs: Mapping[mode_costs.Key, mode_costs.Cost]) -> tuple[Figure, ...]:
    counts = mode_costs.counts(costs, FORM)
    if not counts:
        return ()
    processor = processors.with_traps()[PAPER]
    case = processor.cases[0]
    names = {"published": "paper: function type"} | {
        f"{cpi:g}": f"supervisor, {cpi:g} clocks an instruction" for cpi in processor.cpi
    }
    groups = {}
    for call in PUBLISHED:
        work = counts[SMALL.get(call, call)]
        groups[call] = {"published": published(call)} | {
            f"{cpi:g}": trap_clocks.estimate(case, cpi, work, {}).ratio.high
            for cpi in processor.cpi
        }
    return (
        Figure(
            id="fig7-modelled",
            title=f"Modelled for the {processor.name}: time of a call, trap = 1",
            x_label="",
            y_label="clocks / clocks by trap",
            series=bars(groups, names),
            names=("getpid", "sbrk", "read, 1 B", "write, 1 B"),
            caption="An estimate: the paper's 800 clocks saved a call, and counted instructions "
            "times clocks an instruction. The kernels differ: the paper's FreeBSD executed other "
            "instructions for the same call.",
            kind="modelled",
        ),
    )


TABLE_CALLS = ("getpid", "read1", "read")


def tables(costs: Mapping[mode_costs.Key, mode_costs.Cost]) -> tuple[Table, ...]:
    """A line a call and processor; in each cell the figures at both ends of the range."""
    lines: dict[tuple[str, str, str], dict[float, Estimate]] = {}
    for call, processor, case, cpi, estimate in estimates(costs, TABLE_CALLS):
        lines.setdefault((call, processor.name, case.text), {})[cpi] = estimate
    if not lines:
        return ()
    rows = tuple(
        (
            f"{name}, {setting}",
            call,
            ends(by_cpi, "g"),
            ends((one.trap.middle for one in by_cpi.values()), ",.0f"),
            ends((one.trap.middle - one.supervisor for one in by_cpi.values()), ",.0f"),
            ends((one.ratio.high for one in by_cpi.values()), ".0%"),
        )
        for (call, name, setting), by_cpi in lines.items()
    )
    return (
        Table(
            id="modelled",
            title="Modelled clocks on processors whose traps were measured",
            columns=(
                "processor",
                "call",
                "clocks an instruction",
                "by trap",
                "saved",
                "supervisor / trap",
            ),
            rows=rows,
            caption="Estimates, nothing was run there; of published ranges the middle. By trap: "
            "what was published for one call, and what this call executes beyond that one. In "
            "supervisor mode: counted instructions times clocks an instruction, as long as the "
            "published call does not take less than its instructions alone. With page-table "
            "isolation on, supervisor mode is refused: those lines compare with the same kernel "
            "booted without. " + sources(),
            kind="modelled",
        ),
    )


def ends(values: Iterable[float], form: str) -> str:
    """The first and the last of some figures.

    >>> ends([0.2, 0.35, 0.5], "g")
    '0.2 to 0.5'
    """
    texts = [f"{value:{form}}" for value in values]
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def sources() -> str:
    """Where each published figure was found, one sentence a processor."""
    return " ".join(
        f"{processor.name}: {processor.cases[0].source}."
        for processor in processors.with_traps().values()
    )
