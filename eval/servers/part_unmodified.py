# SPDX-License-Identifier: GPL-2.0-only
"""Runs unmodified servers by trap and in supervisor mode, and reports what each request costs.

This file owns the steps; servers are subjects.py's, runs counting.py's, figures findings.py's and
their words tables.py's.
"""

from __future__ import annotations

from eval.servers import counting, findings, tables
from eval.servers.unmodified import subjects
from trapless.experiments import stat_runs
from trapless.experiments.collection import Collection, guest_folder
from trapless.experiments.experiment import Findings, Raw
from trapless.report.figures import Figure, Map, Table
from trapless.stock import programs


def collect(run: Collection) -> None:
    root = programs.unpacked(run.progress, subjects.PACKAGES, (), subjects.ROOT)
    chosen = subjects.servers(quick=run.quick)
    with guest_folder(run.directory) as folder:
        wanted = counting.runs(run.kernel, root, folder, chosen, quick=run.quick)
        stat_runs.collect(run, tuple(wanted))
    run.write(
        {
            "server": server.name,
            "version": f"{server.package} {root.versions[server.package]}",
            "load": shape.name,
            "words": shape.words,
            "requests": shape.requests,
            "check": f"{server.name}, {shape.name}: each reply compared",
            "made": shape.requests,
        }
        for server in chosen
        for shape in server.shapes(quick=run.quick)
    )


def analyse(raw: Raw) -> Findings:
    counted = findings.counted_of(raw.rows)
    return Findings(tables.metrics(counted), tables.claims_of(counted))


def figures(raw: Raw) -> tuple[Figure | Map | Table, ...]:
    counted = findings.counted_of(raw.rows)
    return (
        tables.savings(counted),
        tables.held(counted),
        *tables.far(counted),
        tables.predictions(counted),
        tables.events(counted),
        *tables.modelled(counted),
    )
