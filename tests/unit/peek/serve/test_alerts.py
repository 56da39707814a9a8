# SPDX-License-Identifier: GPL-2.0-only
"""The rules for Prometheus, by its own tool: they are well formed, and each alert fires for what it
is for, and for nothing else. alerts_test.yml has the made-up machines.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_each_alert_has_a_test():
    def alerts(path: Path, key: str) -> set[str]:
        return set(re.findall(rf"- {key}: (\w+)", path.read_text()))

    rules = alerts(RULES / "alerts.yml", "alert")
    assert len(rules) >= 9 and rules == alerts(HERE / "alerts_test.yml", "alertname")
