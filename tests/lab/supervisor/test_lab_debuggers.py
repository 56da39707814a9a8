# SPDX-License-Identifier: GPL-2.0-only
"""strace and gdb, the host's own, on a process that is in supervisor mode when they come.

The process is a stage of supervisor_tracer_sees_every_call.c; what the tools print is compared with
what it did.
"""

from __future__ import annotations

import re
import shutil

import pytest

from tests.lab.conftest import shown_progress
from tests.lab.runner import suite
from trapless.vm import lab
from trapless.vm.splats import splats

pytestmark = [
    pytest.mark.lab,
    pytest.mark.outer_kernels,
    pytest.mark.tool,
    pytest.mark.timeout(0),  # the lab's own limits apply
]

CALLS = 3000
FIRST = 0x40000000
"""TOOL_CALLS and TOOL_FIRST of the program; calls that it makes before it is told have less."""

START = """
cd /tmp
mkfifo said
TL_TEST_STAGE=$1 "$0" supervisor_tracer_sees_every_call >said & target=$!
read -r inside <said || exit
"""
STRACE = (
    START
    + """
strace -qq -e trace=getpgid -o trace -p $target >&2 & tracer=$!
tries=0
until grep -q getpgid trace 2>/dev/null; do
    [ $((tries += 1)) -lt 600 ] || exit
    sleep 0.1
done
kill -USR1 $target
wait $target || exit
wait $tracer
cat trace
"""
)
GDB = (
    START
    + """
gdb -q -nx -batch -p $target -ex 'print $cs' -ex 'print $ss' -ex 'stepi 50' -ex 'print $cs' \
    -ex detach 2>&1
kill -USR1 $target
wait $target
"""
)


def run(kernel: str, config: pytest.Config, tool: str, script: str) -> str:
    """What the script prints in a VM that has the host's files."""
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not on this machine; scripts/setup installs it")
    with shown_progress(config) as progress:
        suite.build_programs(progress)
        result = lab.run(
            lab.LabConfig(
                kernel=kernel,
                cpus=2,
                host_root=True,
                module_parameters=suite.MODULE_PARAMETERS,
                timeout_s=1800,
            ),
            ["sh", "-c", script, str(suite.BINARY), tool],
            progress=progress,
        )
    said = result.stdout.decode() + result.stderr.decode()
    assert result.status == 0, said
    assert splats(result.kernel_log) == []
    return said


def test_strace_that_comes_later_sees_every_call(kernel: str, pytestconfig: pytest.Config) -> None:
    said = run(kernel, pytestconfig, "strace", STRACE)
    numbers = [int(number) - FIRST for number in re.findall(r"getpgid\((\d+)\)", said)]
    assert [number for number in numbers if number >= 0] == list(range(CALLS))


def test_gdb_attaches_steps_and_leaves(kernel: str, pytestconfig: pytest.Config) -> None:
    said = run(kernel, pytestconfig, "gdb", GDB)
    assert re.findall(r"^\$\d = (\d+)$", said, re.MULTILINE) == ["51", "43", "51"], said
