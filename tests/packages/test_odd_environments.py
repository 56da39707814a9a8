# SPDX-License-Identifier: GPL-2.0-only
"""The command where its surroundings are odd: it says in one line what is wrong, never a traceback.

Standard streams are full, closed or read by nobody; the user has no home, the current folder is
gone, the machine has no Python. What Python itself may lack is test_missing_packages.py's business.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / "bin" / "trapless"
FACES = ["--version", "--help", "doctor", "doctor --json", "lab --help", "evaluate --list"]


def shell(text, **env):
    return subprocess.run(
        ["bash", "-c", text, "bash", COMMAND],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | env,
    )


@pytest.mark.parametrize("face", FACES)
def test_output_that_a_full_disk_takes_no_more_of_is_an_error(face):
    done = shell(f'"$1" {face} >/dev/full')
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "trapless: cannot write: No space left on device"
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_the_caller_closed_is_no_obstacle(face, closed):
    done = shell(f'"$1" {face} {closed}')
    assert done.returncode == 0 and "Traceback" not in done.stderr


@pytest.mark.parametrize("face", FACES)
def test_a_reader_that_has_enough_is_no_error_to_read_about(face):
    done = shell(f'"$1" {face} | true')
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr and "cannot write" not in done.stderr


def test_a_user_without_a_home_is_told_to_name_a_cache():
    """bin/trapless as a user that no table names; the checkout may be closed to that user."""
    text = "import os; del os.environ['HOME']; import pwd; pwd.getpwuid = {}.__getitem__\n"
    text += "import sys; sys.argv = ['trapless', 'doctor']\n"
    text += "from trapless.__main__ import main; main()"
    env = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    env.pop("TRAPLESS_CACHE", None)
    done = subprocess.run(
        [ROOT / ".venv/bin/python", "-c", text], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 1
    remedy = "has no home folder for the cache; name one with TRAPLESS_CACHE=DIR"
    assert done.stderr.startswith("trapless: user ") and remedy in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_cache_beside_a_folder_that_is_gone_is_named(tmp_path):
    text = f'mkdir {tmp_path}/gone; cd {tmp_path}/gone; rmdir {tmp_path}/gone; "$1" doctor'
    done = shell(text, TRAPLESS_CACHE="beside")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "the current folder was removed, and TRAPLESS_CACHE=beside is relative" in done.stderr


def test_a_machine_without_python_is_told_its_package(tmp_path):
    """A checkout as it was cloned, and a PATH with nothing but what finds it."""
    (tmp_path / "bin").mkdir()
    launcher = tmp_path / "bin" / "trapless"
    launcher.write_text(COMMAND.read_text())
    for tool in ("sh", "readlink"):
        (tmp_path / tool).symlink_to(f"/bin/{tool}")
    done = subprocess.run(
        [tmp_path / "sh", launcher, "--help"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.endswith("is missing; on Debian: apt-get install python3\n")
