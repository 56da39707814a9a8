# SPDX-License-Identifier: GPL-2.0-only
"""A checkout on a machine that has git, make and nothing else (`make packages-test`).

What `make setup` installs must do for whatever README shows before `make test`: a tool that a
developer's machine has by chance would be missing there.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packages.conftest import Root

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "/root/trapless"
ONLY_TESTS_NEED = ("clang", "cargo", "gdb", "strace", "mandoc", "grub-mkrescue")


@pytest.fixture(scope="module")
def machine(root: Root) -> Iterator[Root]:
    """A clean root with a clone of this checkout, as it stands."""
    root.run("apt-get -q -y install git make")
    clone = root.folder / FOLDER.lstrip("/")
    clone.mkdir()
    copying = f"git -C '{ROOT}' ls-files -z | tar -C '{ROOT}' --null -T - -c | tar -x -C '{clone}'"
    subprocess.run(copying, shell=True, check=True)
    yield root


def test_setup_installs_what_the_command_needs_and_no_more(machine):
    said = machine.run(f"cd {FOLDER} && make setup")
    assert "gcc - the module" in said and ".venv is ready" in said
    assert machine.run(f"cd {FOLDER} && make setup") == ""
    for tool in ONLY_TESTS_NEED:
        machine.run(f"command -v {tool}", status=127)
    assert "yes  tools for builds" in machine.run(f"cd {FOLDER} && bin/trapless doctor")


def test_the_lab_and_experiments_need_nothing_else(machine):
    machine.run(f"cd {FOLDER} && make -s workloads")
    release = machine.run(f"cd {FOLDER} && bin/trapless lab -- uname -r").splitlines()[-1]
    assert release.endswith("-amd64")
    words = "bin/trapless evaluate --quick --out /root/results programs"
    assert "The report: /root/results/report.html" in machine.run(f"cd {FOLDER} && {words}")
