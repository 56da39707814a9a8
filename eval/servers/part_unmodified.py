# SPDX-License-Identifier: GPL-2.0-only
"""Runs unmodified servers by trap and in supervisor mode, and reports what each request costs.

This file owns the steps; servers are packaged_servers.py's, runs counting.py's, figures
findings.py's and their words server_results.py's.
"""

from __future__ import annotations

from eval.servers import counting, findings, server_results
from eval.servers.unmodified import packaged_servers
from trapless.experiments import stat_runs
from trapless.experiments.collection import Collection, guest_folder
from trapless.experiments.experiment import Findings, Raw
from trapless.report.figures import Figure, Map, Table
from trapless.stock import real_programs


def collect(run: Collection) -> None:
    root = real_programs.unpacked(
        run.progress, packaged_servers.PACKAGES, (), packaged_servers.ROOT
    )
    chosen = packaged_servers.servers(quick=run.quick)
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
    return Findings(server_results.metrics(counted), server_results.claims_of(counted))


def figures(raw: Raw) -> tuple[Figure | Map | Table, ...]:
    counted = findings.counted_of(raw.rows)
    return (
        server_results.savings(counted),
        server_results.held(counted),
        *server_results.far(counted),
        server_results.predictions(counted),
        server_results.events(counted),
        *server_results.modelled(counted),
    )
