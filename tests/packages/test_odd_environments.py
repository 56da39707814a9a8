# SPDX-License-Identifier: GPL-2.0-only
"""The command where its surroundings are odd: it says in one line what is wrong, never a traceback.

Standard streams are full, closed or read by nobody; the user has no home, the current folder is
gone, the machine has no Python. What Python itself may lack is test_missing_packages.py's business.
"""

from __future__ import annotations

import os
import re
import resource
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


def test_ctrl_c_ends_what_is_still_starting(tmp_path):
    """The launcher, with a package that is interrupted where the command's own is imported."""
    for folder in ("bin", "trapless"):
        (tmp_path / folder).mkdir()
    (tmp_path / "bin/trapless").write_text(COMMAND.read_text())
    text = "import signal; signal.raise_signal(signal.SIGINT); print('went on')"
    (tmp_path / "trapless/__main__.py").write_text(text)
    done = subprocess.run(["sh", tmp_path / "bin/trapless"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("face", FACES)
def test_output_that_a_full_disk_takes_no_more_of_is_an_error(face):
    done = shell(f'"$1" {face} >/dev/full')
    assert done.returncode == 1
    reason = "cannot write to standard output: No space left on device"
    assert done.stderr.splitlines()[-1] == f"trapless: {reason}"
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_the_caller_closed_is_no_obstacle(face, closed):
    done = shell(f'"$1" {face} {closed}')
    assert done.returncode == 0 and "Traceback" not in done.stderr


def test_an_input_that_is_the_commands_own_output_is_empty():
    """So bash starts what stands in $( ) where its own input is closed; cat alone would hang."""
    done = shell('f() { got=$("$1" run -- cat); echo "$? <$got>"; }; f "$1" <&-')
    assert (done.stdout, done.stderr) == ("0 <>\n", "")


GONE = 'mkdir "$2" && cd "$2" && rmdir "$2"; "$1"'


@pytest.mark.parametrize(
    ("command", "status"),
    [("run --lab -- true", 125), ("stat --lab -- true", 125), ("lab --host-root -- true", 1)],
)
def test_who_needs_the_current_folder_says_that_it_is_gone(tmp_path, command, status):
    done = shell(f'set -- "$1" {tmp_path}/gone; {GONE} {command}')
    assert done.returncode == status and "Traceback" not in done.stderr
    reason = "the current folder was removed; change to another folder"
    assert done.stderr.splitlines()[-1] == f"trapless: {reason}"


def test_a_limit_that_is_too_low_is_named_with_the_call():
    done = subprocess.run(
        [COMMAND, "run", "--lab", "--", "true"],
        capture_output=True,
        text=True,
        timeout=600,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    )
    assert done.returncode == 125 and "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    reason = "File too large; the limit of a file's size is too low (ulimit -f)"
    assert re.fullmatch(rf"trapless: \w+: {re.escape(reason)}", last)


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
    last = done.stderr.splitlines()[-1]  # after what a slow machine has done so far
    assert last.startswith("trapless: user ") and last.endswith(remedy)
    assert "Traceback" not in done.stderr


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
