# SPDX-License-Identifier: GPL-2.0-only
"""Judges what the lab's C programs did: one test item a program and kernel.

A program holds when it ends with 0, the kernel logged no complaint while it ran, and nothing of
the module stayed in use after it. 77 is a skip with the program's own reason.
"""

from __future__ import annotations

import pytest

from tests.lab.suite import Suite
from trapless.splats import splats

pytestmark = [pytest.mark.lab, pytest.mark.timeout(0)]  # the lab's own limits apply

EXIT_SKIP = 77


def test_behaviour(kernel: str, program: str, suite: Suite) -> None:
    outcome = suite.outcome(program)
    complaints = splats(outcome.kernel)
    said = outcome.output.strip()
    if outcome.end == "crash":
        pytest.fail(f"the VM died:\n{said}", pytrace=False)
    if outcome.end == "missing":
        pytest.fail(f"was not run: {said}", pytrace=False)
    if complaints:
        pytest.fail("the kernel complained:\n" + "\n\n".join([*complaints, said]), pytrace=False)
    if outcome.end != "exit":
        text = f"ended by {outcome.end} {outcome.code} after {outcome.ms} ms\n{said}"
        pytest.fail(text, pytrace=False)
    if outcome.in_use > 0:
        pytest.fail(f"the module has {outcome.in_use} users left\n{said}", pytrace=False)
    if outcome.code == EXIT_SKIP:
        pytest.skip(said or "no reason given")
    if outcome.code != 0:
        pytest.fail(f"exit status {outcome.code}\n{said}", pytrace=False)


def test_kernel_log_is_clean(kernel: str, suite: Suite) -> None:
    """Boot, module load and shutdown complain no more than the programs between them."""
    if not suite.logs:
        pytest.fail(f"no VM came to its end: {suite.error}", pytrace=False)
    known = {text for outcome in suite.outcomes.values() for text in splats(outcome.kernel)}
    rest = [text for log in suite.logs for text in splats(log) if text not in known]
    if rest:
        pytest.fail("\n\n".join(rest), pytrace=False)
