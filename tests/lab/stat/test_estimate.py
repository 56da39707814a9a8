# SPDX-License-Identifier: GPL-2.0-only
"""`trapless estimate` means something: in a guest with the module, where the clock counts
instructions, the sum of its parts is what batches by the module itself take, on every kernel.
"""

from __future__ import annotations

import pytest

from eval.batch_size import part_estimate
from trapless.base.paths import repo_root
from trapless.estimate import estimated_machine, placements, sums
from trapless.vm import lab

# The lab's own limits of time apply.
pytestmark = [pytest.mark.lab, pytest.mark.tool, pytest.mark.timeout(0)]

BUILT = repo_root() / "build" / placements.BUILT
PROGRAM = "/estimate"
DIFFER_MAX = 0.06
"""On the newest kernel the module takes 165 instructions where the estimate says 157."""
APPEND = "init_on_alloc=0 clearcpuid=erms,fsrm"
"""The kernel neither clears fresh memory nor copies by `rep` instructions, which this clock counts
a byte each: statx and fstat copy more bytes than a compound call."""
DIRECTORY = "/tmp/directory"
ROUNDS = "12"
"""So many that one in which the guest's kernel did nothing beside is among them: the least."""
MITIGATIONS = (
    f"for name in {' '.join(estimated_machine.ASKED)}; "
    f"do cat /{estimated_machine.VULNERABILITIES}/$name; done"
)


def mitigations(kernel: str) -> dict[str, str]:
    config = lab.LabConfig(kernel=kernel, icount=True, module=False, quick_start=True)
    said = lab.run(config, ["sh", "-c", MITIGATIONS]).stdout.decode().splitlines()
    return dict(zip(estimated_machine.ASKED, said, strict=True))


def test_the_sum_is_what_the_module_takes(kernel: str) -> None:
    loop = estimated_machine.loop_of(mitigations(kernel))
    config = lab.LabConfig(
        kernel=kernel, icount=True, quick_start=True, files=((BUILT, PROGRAM),), append=APPEND
    )
    command = f"{PROGRAM} --loop {loop} --rounds {ROUNDS} --module --directory {DIRECTORY}"
    done = lab.run(config, ["sh", "-c", f"mkdir {DIRECTORY} && exec {command}"])
    assert done.status == 0, done.stderr.decode()
    reading = placements.parse(done.stdout.decode())
    compared = list(part_estimate.held(reading.least))
    assert [(call, n) for call, n, _, _ in compared] == [
        (call, n) for call in ("getppid", "pread1") for n in (1, 2, 3, 8, 32, 128)
    ]
    faults = [
        f"{call}, N = {n}: estimate {estimate:.1f}, module {module:.1f}"
        for call, n, estimate, module in compared
        if abs(estimate - module) > DIFFER_MAX * module
    ]
    assert not faults, "\n".join(faults)
    compound = reading.least[f"listing.module.n{sums.DIRECTORY_N}"]
    low, estimate, high = (
        sums.by_compound_call(reading.least.__getitem__, lookup)
        for lookup in (0.0, sums.LOOKUP, 1.0)
    )
    assert low < compound < high
    assert abs(estimate - compound) < DIFFER_MAX * compound
