# SPDX-License-Identifier: GPL-2.0-only
"""The rules for Prometheus, by its own tool: they are well formed, and each alert fires for what it
is for, and for nothing else. alerts_test.yml has the made-up machines.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from trapless.peek import diagnosis
from trapless.peek.diagnosis.text import diagnosis_in_json
from trapless.peek.diagnosis.two_looks import Diagnosis
from trapless.peek.kernel.health.hang_causes import Cause, Look, Verdict
from trapless.peek.serve import metrics

HERE = Path(__file__).parent
RULES = Path(metrics.__file__).parent / "prometheus"


def promtool(*arguments: str | Path) -> str:
    places = os.pathsep.join((str(Path(sys.prefix) / "bin"), os.environ["PATH"]))
    program = shutil.which("promtool", path=places)
    if program is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    argv = [program, *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_and_the_example_are_well_formed():
    assert "SUCCESS" in promtool("check", "config", RULES / "prometheus.yml")


@pytest.mark.slow
def test_each_alert_fires_for_what_it_is_for():
    assert "SUCCESS" in promtool("test", "rules", HERE / "alerts_test.yml")


def test_the_timer_tells_the_node_exporter_what_hangs(tmp_path):
    """The program of peek why's page, which keeps its last answers when the command fails."""
    page = (Path(diagnosis.__file__).parent / "README.md").read_text()
    program = next(one for one in re.findall(r"```sh\n(#!.*?)```", page, re.S))
    (folder,) = re.findall("^cd (\\S+)", program, re.M)
    command = tmp_path / "trapless"
    shown = 'test "$*" = "peek why --all --json" && cat said; exit $(cat ends)'
    command.write_text(f"#!/bin/sh\n{shown}\n")
    command.chmod(0o755)
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")

    def metrics_of(status: int, *answers: dict[str, object]) -> list[tuple[str, str, float]]:
        (tmp_path / "ends").write_text(str(status))
        (tmp_path / "said").write_text("\n".join(map(json.dumps, answers)))
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        argv = ["sh", "-c", program.replace(folder, str(tmp_path))]
        done = subprocess.run(argv, env={**os.environ, **path}, check=False)
        assert done.returncode == (status == 1)
        text = (tmp_path / "peek-why.prom").read_text()
        (family,) = text_string_to_metric_families(text)
        assert (family.name, family.type) == ("trapless_why_hangs", "gauge")
        assert family.documentation
        rows = family.samples
        return [(one.labels["vm"], one.labels["cause"], one.value) for one in rows]

    one = Verdict(Cause.LOCK, "two threads", 1.0, "x")
    seen = Diagnosis("6.1.0", Look(1.0, 1, 1, (), ()), (one, one), (), 2, "a (process 7)")
    hangs = {**diagnosis_in_json(seen), "vm": 'a"\\x1b'}
    quiet = {**diagnosis_in_json(replace(seen, verdicts=())), "vm": "b"}
    lines = metrics_of(3, hangs, quiet, {"machine": "x", "error": "it is booting", "vm": "c"})
    assert lines == [(hangs["vm"], "lock", 1), ("b", "none", 0), ("c", "not_read", 0)]
    assert metrics_of(1, quiet) == lines
    assert metrics_of(0, quiet) == lines[1:2]


def test_each_alert_has_a_test():
    def alerts(path: Path, key: str) -> set[str]:
        return set(re.findall(rf"- {key}: (\w+)", path.read_text()))

    rules = alerts(RULES / "alerts.yml", "alert")
    assert len(rules) >= 9 and rules == alerts(HERE / "alerts_test.yml", "alertname")
