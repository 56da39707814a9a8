# SPDX-License-Identifier: GPL-2.0-only
"""Real programs, unmodified, in supervisor mode: the same output, and nearly every call.

One item for each program of eval/mode_switch/part_programs.py and each kernel; the
programs of a kernel share a VM with two CPUs. Servers are switched back and forth while they serve.
-rP shows the share of each. The experiment owns what it costs; the C programs own how single calls
behave, on each kernel. So the kernels between the oldest and the newest run a few of these
programs; with --tools-once, so does every kernel but the newest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from eval.mode_switch import part_programs as both_modes
from eval.tools.modes import modes
from tests.lab.conftest import shown_progress
from trapless.base.console import Progress, TraplessError
from trapless.experiments.collection import Row
from trapless.stock import real_programs
from trapless.stock.debug_kernel import SPECS
from trapless.stock.kernels import SUPPORTED
from trapless.vm import lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(0)]  # the runner's own limits apply

NAMES = [program.name for program in both_modes.PROGRAMS]
TIMEOUT_S = 2 * 3600.0
FEW = frozenset({"busybox", "ls", "sqlite3", "luajit", "redis"})
"""Static, dynamic, with code made at run time, and a server with threads."""
GO_ON = 'echo \'{"ended": "badly"}\''


@dataclass
class Boot:
    """What the VM of one kernel printed, by program; or why it did not come to its end."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    log: str = ""
    error: str = ""


BOOTS: dict[str, Boot] = {}


def few_will_do(kernel: str, config: pytest.Config) -> bool:
    """Whether a kernel runs a few of them alone; with KASAN and lockdep it is ten times slower."""
    outer = SUPPORTED[-1:] if config.getoption("--tools-once") else (SUPPORTED[0], SUPPORTED[-1])
    between = kernel in {spec.name for spec in SUPPORTED} - {spec.name for spec in outer}
    return kernel in SPECS or between


def run(kernel: str, few: bool, progress: Progress) -> Boot:
    """All programs on one kernel, or a few."""
    chosen = [one for one in both_modes.PROGRAMS if not few or one.name in FEW]
    boot, names, rows = Boot(), iter(one.name for one in chosen), list[Row]()
    rest = b""

    def sink(piece: bytes) -> None:
        nonlocal rows, rest
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            row = json.loads(line)
            if "progress" in row:
                boot.rows[next(names)], rows = rows, []
                progress.advance(row["progress"], row["total"])
            else:
                rows.append(row)

    config = lab.LabConfig(
        kernel=kernel,
        cpus=2,
        files=both_modes.guest_files(),
        timeout_s=TIMEOUT_S,
        module_parameters="supervisor=1",
    )
    script = both_modes.guest_script(chosen, 1, "measured", GO_ON)
    try:
        argv = modes.guest_argv(real_programs.unpacked(progress), script)
        result = lab.run(modes.guest_config(config), argv, sink=sink, progress=progress)
        boot.log = result.kernel_log
        if result.status:
            boot.error = result.stderr.decode(errors="replace")
    except lab.LabError as error:
        boot.log, boot.error = error.kernel_log, str(error)
    except TraplessError as error:
        boot.error = str(error)
    return boot


@pytest.fixture
def boot(kernel: str, pytestconfig: pytest.Config) -> Boot:
    """The boot of a kernel; the first test of a kernel waits for it."""
    if kernel not in BOOTS:
        with shown_progress(pytestconfig) as progress:
            BOOTS[kernel] = run(kernel, few_will_do(kernel, pytestconfig), progress)
            progress.done()
    return BOOTS[kernel]


@pytest.mark.parametrize("name", NAMES)
def test_a_program_does_the_same_in_supervisor_mode(
    kernel: str, name: str, boot: Boot, pytestconfig: pytest.Config
) -> None:
    if name not in FEW and few_will_do(kernel, pytestconfig):
        pytest.skip("takes minutes, and does not run on each kernel")
    rows = boot.rows.get(name)
    assert rows is not None, f"the VM did not come to it: {boot.error}"
    faults = [row for row in rows if {"failure", "ended", "skipped"} & row.keys()]
    assert not faults
    assert [row for row in rows if "check" in row]
    found = modes.runs_of(rows, "ns")[name]
    assert found.trap and found.supervisor and found.calls
    for calls, share, demotions in zip(found.calls, found.shares, found.demotions, strict=True):
        print(f"{name}: {share:.2%} of {calls.total} calls returned in supervisor mode")
        assert share >= both_modes.SHARE_MIN, (calls, demotions)


def test_the_kernels_log_is_clean(kernel: str, boot: Boot) -> None:
    assert not boot.error
    assert not lab.splats(boot.log)
