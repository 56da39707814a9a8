# SPDX-License-Identifier: GPL-2.0-only
"""Holds `trapless estimate` against the module: in a guest that has both, the sum of its parts
beside what batches by the module take, in instructions and in the emulator's time.

This file owns the boots, the comparison and the table. How the sum is made is trapless/estimate's
business; a test promises the counted part on every kernel (tests/lab/stat/test_estimate.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from trapless.base import built_programs
from trapless.estimate import estimated_machine, placements
from trapless.estimate.sums import BEYOND, NO_CALL, without_handler
from trapless.experiments.collection import Collection
from trapless.experiments.experiment import Findings, Raw
from trapless.report.figures import Table
from trapless.results.result_file import Metric
from trapless.vm.lab import LabConfig

PROGRAM = "/bin/estimate"
CALLS = {"getppid": "getppid", "pread1": "pread of 1 B, tmpfs"}
BATCHES = (1, 2, 3, 8, 32, 128)
ROUNDS = {"counted": 12, "measured": 60}
SAY_MITIGATIONS = (
    f"for name in {' '.join(estimated_machine.ASKED)}; do printf "
    f'\'{{"mitigation": "%s", "said": "%s"}}\\n\' $name '
    f'"$(cat /{estimated_machine.VULNERABILITIES}/$name)"; '
    "done; echo '{\"complete\": true}'"
)


def collect(run: Collection) -> None:
    """Ask the guest for its mitigations, then count, then measure."""
    config = LabConfig(
        kernel=run.kernel,
        cpus=1,
        icount=True,
        files=((built_programs.find(placements.BUILT), PROGRAM),),
    )
    said = run.boot("mitigations", config, ["/bin/sh", "-c", SAY_MITIGATIONS])
    loop = estimated_machine.loop_of(
        {row["mitigation"]: row["said"] for row in said if "said" in row}
    )
    for kind, rounds in ROUNDS.items():
        guest = replace(config, icount=kind == "counted")
        command = f"{PROGRAM} --loop {loop} --rounds {rounds} --module"
        script = f"set -e; {command}; echo '{{\"complete\": true}}'"
        run.boot(kind, guest, ["/bin/sh", "-c", script])


def pairs(raw: Raw, kind: str) -> Iterator[tuple[str, int, float, float]]:
    """held() of a boot; nothing for results that are older than this part."""
    boot = f"estimate-{kind}"
    least = {
        row["subject"]: row["least"]
        for row in raw.rows
        if row.get("boot") == boot and "subject" in row
    }
    if least:
        yield from held(least)


def held(least: Mapping[str, float]) -> Iterator[tuple[str, int, float, float]]:
    """Call, N, estimate and module: the cost of one of N calls, in the fastest of all rounds."""
    bare = without_handler(least[BEYOND], least[NO_CALL])
    for call in CALLS:
        for n in BATCHES:
            estimate = least[call] - bare + least[f"batch.n{n}"]
            yield call, n, estimate, least[f"module.{call}.n{n}"]


def analyse(raw: Raw) -> Findings:
    metrics = {}
    for kind, unit in (("counted", "ratio"), ("measured", "time-ratio")):
        for call, n, estimate, module in pairs(raw, kind):
            metrics[f"{call}.estimate.n{n}.{unit}"] = Metric(
                round(estimate / module, 4), unit, kind
            )
    return Findings(metrics)


def figures(raw: Raw) -> tuple[Table, ...]:
    counted = {(call, n): both for call, n, *both in pairs(raw, "counted")}
    measured = {(call, n): both for call, n, *both in pairs(raw, "measured")}
    if not counted:
        return ()
    rows = tuple(
        (
            CALLS[call],
            str(n),
            f"{counted[call, n][0]:,.0f}",
            f"{counted[call, n][1]:,.0f}",
            _off(*counted[call, n]),
            _off(*measured[call, n]),
        )
        for call, n in counted
    )
    return (
        Table(
            id="estimate-held",
            title="trapless estimate, held against the module",
            columns=("call", "N", "estimate", "module", "off by", "in time, off by"),
            rows=rows,
            caption="One of N calls of a batch: as `trapless estimate` adds it up from plain calls "
            "and the module's loop in user space, and as the module takes it, in one guest. First "
            "in instructions, last in the emulator's time; the least of all rounds.",
            kind="counted",
        ),
    )


def _off(estimate: float, module: float) -> str:
    return f"{estimate / module - 1:+.1%}"
