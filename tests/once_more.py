# SPDX-License-Identifier: GPL-2.0-only
"""Runs lab and slow tests that failed once more, alone, and separates unsteady from failed ones.

A busy machine must not lose a landing, and a race must not hide: a test that passes the second time
is named in the closing lines as unsteady with what failed, both logs stay in build/once-more, and
the run succeeds only with fewer than UNSTEADY_MAX of them. It runs at the end of a session with
`--once-more`, which `make test` gives. It repeats nothing but tests marked `lab` or `slow`: those
depend on other processes or virtual machines.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

REPEATED = ("lab", "slow")
"""Marks of the tests that run again."""
UNSTEADY_MAX = 3
"""With so many unsteady tests a run fails: so many are no accident."""
FAILURES_MAX = 10
"""With more failures than this nothing is run again: something is broken."""
LIMIT_S = 3600
"""Limit for a run that hangs, seconds."""
FOLDER = Path("build/once-more")
EXCERPT_LINES = 40
"""Of what failed first: the logs are lost where a machine is given back after its run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--once-more",
        action="store_true",
        help="run lab and slow tests that failed once more, alone; fewer than "
        f"{UNSTEADY_MAX} that pass then are no failure, but are named as unsteady",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("once_more") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(OnceMore(config))


class OnceMore:
    """The second chance of one session. Under xdist its workers have ended when it begins."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._lines: list[str] = []

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        shutil.rmtree(self._config.rootpath / FOLDER, ignore_errors=True)  # of an earlier run
        stats = self._terminal.stats
        bad = [*stats.get("failed", ()), *stats.get("error", ())]
        groups = _groups(report for report in bad if _is_repeated(report))
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED or not groups:
            return
        if len(groups) > FAILURES_MAX:
            self._lines.append(f"{len(groups)} tests failed: too many to run them once more")
            return
        unsteady = [group for group in groups if self._passes(group)]
        self._rename({report.nodeid for group in unsteady for report in group})
        if len(unsteady) < UNSTEADY_MAX and not {"failed", "error"} & stats.keys():
            session.exitstatus = pytest.ExitCode.OK

    def _passes(self, group: list[pytest.TestReport]) -> bool:
        """Run the tests that failed for one reason again, in one process, and keep both logs."""
        names = list(dict.fromkeys(report.nodeid for report in group))
        self._terminal.ensure_newline()
        self._terminal.write_line(f"once more, alone: {' '.join(names)}")
        command = [sys.executable, "-m", "pytest", "-rA", "-n0", "-p", "no:cacheprovider"]
        kernels = ["--kernels", self._config.getoption("kernels")]
        if self._config.getoption("tools_once"):
            kernels.append("--tools-once")
        done = subprocess.run(
            [*command, *kernels, *names],
            cwd=self._config.rootpath,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
        log = self._keep(group, done.stdout)
        passed = done.returncode == 0 and re.search(r"\b\d+ passed", done.stdout) is not None
        verdict = "unsteady" if passed else "failed twice"
        self._lines += [f"{verdict}: {name} (both logs: {log})" for name in names]
        self._lines += [f"    {line}" for line in _reason(group[0])]
        return passed

    def _keep(self, group: list[pytest.TestReport], again: str) -> Path:
        log = FOLDER / f"{re.sub(r'[^a-zA-Z0-9_.]+', '-', group[0].nodeid).strip('-')}.log"
        first = [
            "\n".join([report.nodeid, report.longreprtext, *(text for _, text in report.sections)])
            for report in group
        ]
        path = self._config.rootpath / log
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(["==== first", *first, "==== once more, alone", again]))
        return log

    def _rename(self, names: set[str]) -> None:
        """Count tests as unsteady that were counted as failed."""
        stats, renamed = self._terminal.stats, {}
        for kind in ("failed", "error"):
            for report in stats.pop(kind, []):
                if report.nodeid in names:
                    renamed[report.nodeid] = report
                else:
                    stats.setdefault(kind, []).append(report)
        for report in renamed.values():
            report.outcome = "unsteady"
            self._config.hook.pytest_runtest_logreport(report=report)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        return ("unsteady", "", "") if report.outcome == "unsteady" else None

    def pytest_terminal_summary(self) -> None:
        for line in self._lines:
            self._terminal.write_line(line)


def _is_repeated(report: object) -> bool:
    keywords = getattr(report, "keywords", ())
    return any(mark in keywords for mark in REPEATED)


def _reason(report: pytest.TestReport) -> list[str]:
    """What failed, without the way to it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else report.longreprtext
    return text.splitlines()[:EXCERPT_LINES]


def _groups(reports: Iterable[pytest.TestReport]) -> list[list[pytest.TestReport]]:
    """Reports by what failed: a test, or something that several share and that is set up once."""
    groups: dict[str, list[pytest.TestReport]] = {}
    for report in reports:
        crash = getattr(report.longrepr, "reprcrash", None)
        shared = f"{crash.path}:{crash.lineno}: {crash.message}" if crash else ""
        key = shared if report.when == "setup" and shared else report.nodeid
        groups.setdefault(key, []).append(report)
    return list(groups.values())
