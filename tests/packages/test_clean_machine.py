# SPDX-License-Identifier: GPL-2.0-only
"""A checkout on a machine that has git, make and nothing else (`make packages-test`).

What `make setup` installs must do for whatever README shows before `make test`: a tool that a
developer's machine has by chance would be missing there.
"""

from __future__ import annotations

import re
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


def test_one_count_in_the_lab_needs_no_more_than_install_md_says(machine):
    text = (ROOT / "docs/install.md").read_text()
    block = re.search(r"```sh\n(sudo apt-get install [^`]*python3-click[^`]*)```", text)
    assert block
    words = block[1].replace("sudo apt-get", "apt-get -q -y")
    machine.run(f"cd {FOLDER} && set -e; {words}")
    recipe = re.search(r"## Count what a call .*?```c\n(.*?)```.*?```sh\n(.*?)```",
                       (ROOT / "examples/cookbook.md").read_text(), re.S)  # fmt: skip
    assert recipe
    (machine.folder / FOLDER.lstrip("/") / "recipe.c").write_text(recipe[1])
    assert "results: the same" in machine.run(f"cd {FOLDER} && set -e; {recipe[2]}")


def test_setup_installs_what_the_command_needs_and_no_more(machine):
    said = machine.run(f"cd {FOLDER} && make setup")
    assert "liburing-dev - the io_uring side" in said and ".venv is ready" in said
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
