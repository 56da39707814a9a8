# SPDX-License-Identifier: GPL-2.0-only
"""What supervisor mode saves is predicted: of real programs, and of servers.

A quick run of all experiments has neither. Both are here and not beside that run, so that another
process of pytest can take them.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from trapless.base.console import Silent
from trapless.experiments import experiment
from trapless.experiments.collection import Collection
from trapless.results import result_file
from trapless.stock import kernels

ROOT = Path(__file__).resolve().parents[2]
MINUTES = 60
pytestmark = [
    pytest.mark.lab,
    pytest.mark.nightly,
    pytest.mark.timeout(4 * 60 * MINUTES),
]

PREDICTED_WITHIN = 0.2


def test_what_supervisor_mode_saves_real_programs_is_predicted(tmp_path):
    """A part of full runs alone, in sizes that end here in minutes."""
    spec = experiment.get("memory-hierarchy")
    (part,) = (part for part in spec.parts if part.name == "programs")
    kernel = kernels.SUPPORTED[0].name
    run = Collection(spec.name, tmp_path, True, kernel, Silent(), part=part.name)
    part.collect(run)
    run.finish()
    metrics = part.analyse(experiment.load_raw(tmp_path)).metrics
    assert part.figures(experiment.load_raw(tmp_path))
    end = ".supervisor.error.ratio"
    errors = {name.removesuffix(end): one for name, one in metrics.items() if name.endswith(end)}
    assert set(errors) == {"redis", "nginx", "sqlite", "find", "gcc"}
    assert min(one.n for one in errors.values()) > 1
    far = {name: one.value for name, one in errors.items() if abs(one.value) > PREDICTED_WITHIN}
    assert far == {}


def test_what_supervisor_mode_saves_servers_is_predicted(tmp_path):
    out = tmp_path / "results"
    command = [str(ROOT / "bin" / "trapless"), "evaluate", "servers", "--quick", "--out", str(out)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    metrics = result_file.load(out / "servers").metrics
    same, predicted = (
        metrics[f"servers.supervisor.{what}.count"].value for what in ("same-work", "predicted")
    )
    assert predicted == same > 0
    assert json.loads((out / "servers" / "meta.json").read_text())["checks"]
