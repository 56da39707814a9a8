# SPDX-License-Identifier: GPL-2.0-only
"""Random programs of calls, made by the module, do what the reference says: each as a batch, and
then by a worker.

The unit test says so of plain calls. tests/call_programs.py owns the programs and the reference.
`make lab-debug` makes 100,000 of them (`--programs`) on the kernel that looks for mistakes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.call_programs import compare
from tests.make import make
from trapless.vm import lab

pytestmark = [pytest.mark.outer_kernels, pytest.mark.lab, pytest.mark.timeout(4 * 3600)]

ROOT = Path(__file__).resolve().parents[3]
RUNNER = ROOT / "build/tests/unit/lib_run_programs"
OF_A_BOOT = 10_000


def test_module_does_what_the_reference_says(kernel: str, pytestconfig: pytest.Config) -> None:
    make(RUNNER)
    config = lab.LabConfig(
        kernel=kernel,
        files=((RUNNER, "/bin/run_programs"),),
        env=(("TRAPLESS_BACKEND", "module"),),
        timeout_s=1800,
    )

    def run(packed: bytes) -> bytes:
        result = lab.run(config, ["/bin/run_programs"], stdin=packed)
        assert result.status == 0, result.stderr.decode()
        return result.stdout

    for first in range(0, pytestconfig.getoption("--programs"), OF_A_BOOT):
        found = compare(run, OF_A_BOOT, 2 + first // OF_A_BOOT, all_offered=True)
        assert found == [], f"the programs from {first:,} on"
