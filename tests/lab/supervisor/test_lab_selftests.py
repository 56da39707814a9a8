# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own self-tests for x86, in user mode and in supervisor mode: both do the same.

All programs of selftests.py run in one VM a mode. In user mode each ends with 0, so that a program
that tests nothing is noticed; in supervisor mode each reports the same, but for what
docs/supervisor-mode.md says of level 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from tests.lab.conftest import shown_progress
from tests.lab.runner.suite import MODULE_PARAMETERS
from tests.lab.supervisor import selftests
from trapless import abi
from trapless.base.console import Progress
from trapless.stock.kernels import SUPPORTED
from trapless.vm import lab

pytestmark = [pytest.mark.lab, pytest.mark.nightly, pytest.mark.timeout(0)]

KERNELS = frozenset(spec.name for spec in SUPPORTED[1:])
"""The oldest kernel's self-tests are an earlier edition of the same."""
LIMIT_S = 1800
SCRIPT = """
for name; do
    echo "=== $name"
    timeout "$LIMIT_S" "/selftests/$name" 2>&1
    echo "=== ended $?"
done
"""
EVERYTHING = abi.SWITCH_CHILDREN | abi.SWITCH_EXEC | abi.SWITCH_ANY_USER | abi.SWITCH_ALLOW_HLT

OF_LEVEL_0: Mapping[str, str] = {
    "fsgsbase": r"GS/BASE changed from 0x18/\S+ to 0x0/",  # ss, which it loads into gs
    "ioperm": r"outb to \w+ worked",
    "iopl": r"(CLI|STI|outb to \w+) worked",
    "sigreturn": r"requested 0x1[08]; got 0x(33|2b)|SIGTRAP: ss = 2b, frame ss = 2b",
}
"""Failures that programs report in supervisor mode, because they ask which level they are at, or
for what level 3 alone refuses."""


@dataclass(frozen=True)
class Report:
    """What one program printed, and its exit status."""

    lines: tuple[str, ...]
    status: int

    def failures(self) -> list[str]:
        """The lines that report one."""
        return [line for line in self.lines if re.match(r"\[FAIL\]|not ok", line)]

    def passed(self) -> int:
        """The number of checks that passed."""
        return sum(line.startswith(("[OK]", "ok ")) for line in self.lines)


@dataclass(frozen=True)
class Run:
    """All programs in one mode, and the calls that returned in supervisor mode."""

    reports: Mapping[str, Report]
    inside: int
    log: str


RUNS: dict[tuple[str, bool], Run] = {}


def parse(text: str) -> dict[str, Report]:
    """The reports of one VM."""
    pieces = re.findall(r"^=== (\w+)\n(.*?)^=== ended (\d+)$", text, re.DOTALL | re.MULTILINE)
    return {name: Report(tuple(said.splitlines()), int(status)) for name, said, status in pieces}


def run(kernel: str, supervisor: bool, progress: Progress) -> Run:
    """Run all programs on a kernel in one mode."""
    folder = selftests.built(kernel, progress)
    config = lab.LabConfig(
        kernel=kernel,
        files=tuple((folder / name, f"/selftests/{name}") for name in selftests.PROGRAMS),
        env=(("LIMIT_S", str(LIMIT_S)),),
        module_parameters=MODULE_PARAMETERS,
        append="vsyscall=xonly",
        timeout_s=LIMIT_S * len(selftests.PROGRAMS),
    )
    if supervisor:
        config = replace(config, supervisor=EVERYTHING)
    result = lab.run(config, ["sh", "-c", SCRIPT, "sh", *selftests.PROGRAMS], progress=progress)
    inside = result.calls.direct + result.calls.worked if result.calls else 0
    return Run(parse(result.stdout.decode(errors="replace")), inside, result.kernel_log)


@pytest.fixture
def runs(kernel: str, pytestconfig: pytest.Config) -> tuple[Run, Run]:
    """The runs of a kernel in user mode and in supervisor mode; its first test waits for them."""
    if kernel not in KERNELS:
        pytest.skip(f"self-tests run on {', '.join(sorted(KERNELS))}")
    for supervisor in (False, True):
        if (kernel, supervisor) not in RUNS:
            with shown_progress(pytestconfig) as progress:
                RUNS[kernel, supervisor] = run(kernel, supervisor, progress)
    return RUNS[kernel, False], RUNS[kernel, True]


@pytest.mark.parametrize("name", selftests.PROGRAMS)
def test_a_self_test_reports_the_same_in_supervisor_mode(name: str, runs: tuple[Run, Run]) -> None:
    user, supervisor = (one.reports[name] for one in runs)
    assert user.status == 0, user.lines
    assert not user.failures()
    allowed = OF_LEVEL_0.get(name)
    failures = supervisor.failures()
    if allowed:
        assert not [line for line in failures if not re.search(allowed, line)]
        assert supervisor.status == (1 if failures else 0), supervisor.lines
    else:
        assert not failures
        assert supervisor.status == 0, supervisor.lines
        assert supervisor.passed() == user.passed()


def test_the_programs_ran_in_supervisor_mode(runs: tuple[Run, Run]) -> None:
    user, supervisor = runs
    assert user.inside == 0
    assert supervisor.inside > 1000


def test_the_kernels_log_is_clean(runs: tuple[Run, Run]) -> None:
    for one in runs:
        assert not lab.splats(one.log)
