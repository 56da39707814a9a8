# SPDX-License-Identifier: GPL-2.0-only
"""One test item for each of the lab's C programs and each kernel; verdict.py judges them."""

from __future__ import annotations

import pytest

from tests.lab.runner.suite import Suite
from tests.lab.runner.verdict import judge
from trapless.vm.splats import splats

pytestmark = [pytest.mark.lab, pytest.mark.timeout(0)]  # the lab's own limits apply


def test_behaviour(kernel: str, program: str, suite: Suite) -> None:
    outcome = suite.outcome(program)
    verdict = judge(outcome)
    if verdict.kind == "skip":
        pytest.skip(verdict.text)
    if verdict.kind == "fail":
        pytest.fail(verdict.text, pytrace=False)
    print(f"{outcome.output}\n{outcome.kernel}\n{outcome.ms} ms")  # shown by -rA


def test_kernel_log_is_clean(kernel: str, suite: Suite) -> None:
    """Boot, module load and shutdown complain no more than the programs between them."""
    if not suite.logs:
        pytest.fail(f"no VM came to its end: {suite.error}", pytrace=False)
    known = {text for outcome in suite.outcomes.values() for text in splats(outcome.kernel)}
    rest = [text for log in suite.logs for text in splats(log) if text not in known]
    if rest:
        pytest.fail("\n\n".join(rest), pytrace=False)
