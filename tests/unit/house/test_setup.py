# SPDX-License-Identifier: GPL-2.0-only
"""scripts/setup: quick when nothing lacks, names what does, never half a job.

Machines that lack something are made of a PATH with little on it; nothing is installed here.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SETUP = ROOT / "scripts" / "setup"
TOOLS = ("bash", "cat", "cut", "dirname", "env", "id", "mktemp", "python3", "rm", "sed",
         "sha256sum", "sleep", "tail", "sh")  # fmt: skip


@pytest.fixture
def poor_machine(tmp_path):
    """A PATH with the tools the script itself is made of, and no compiler, QEMU or apt."""
    for tool in TOOLS:
        (tmp_path / tool).symlink_to(shutil.which(tool))
    return {"PATH": str(tmp_path), "HOME": str(tmp_path)}


def setup(*arguments, script=SETUP, **options):
    return subprocess.run(
        [str(script), *arguments], capture_output=True, text=True, timeout=600, **options
    )


def test_nothing_lacks_after_setup():
    assert setup("--tests", "--check-only").returncode == 0


def test_what_lacks_is_named_with_its_purpose(poor_machine):
    run = setup("--check-only", env=poor_machine)
    assert run.returncode == 1
    assert "qemu-system-x86 - the lab: virtual machines" in run.stderr
    assert "python3 -" not in run.stderr
    assert "gdb" not in run.stderr
    assert "gdb - tests" in setup("--tests", "--check-only", env=poor_machine).stderr


def test_elsewhere_than_on_debian_it_installs_nothing_and_names_all(poor_machine):
    run = setup("--tests", env=poor_machine)
    assert run.returncode == 1
    assert "this is not Debian" in run.stderr
    assert "gcc - the module" in run.stderr
    assert "clang - make test" in run.stderr


FAKES = {
    "id": "echo 0",
    "apt-get": 'echo "apt: $*"',
    "df": "echo; echo / 1 1 99999999",
    "python3": f"""
[ "$1 $2" != "-m venv" ] || {{
    mkdir -p "$3/bin"
    printf '#!/bin/sh\necho "Collecting numpy"; sleep 2\n' >"$3/bin/python"
    chmod +x "$3/bin/python"; exit
}}
exec {sys.executable} "$@"
""",
}
"""Programs in the place of those that install: they say what they were asked for."""


@pytest.fixture
def fresh_debian(poor_machine, tmp_path):
    """A checkout and a PATH on a machine that lacks most; nothing is really installed."""
    if not Path("/etc/debian_version").exists():
        pytest.skip("this is not Debian")
    for tool in ("awk", "chmod", "grep", "mkdir", "mv", "tr", "wc"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    for name, code in FAKES.items():
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).write_text(f"#!/bin/sh\n{code}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return {"script": shutil.copy(SETUP, tmp_path / "scripts/setup"), "env": poor_machine}


def test_it_says_first_what_it_will_install_and_then_each_step(fresh_debian):
    run = setup(**fresh_debian)
    assert run.returncode == 0, run.stderr
    said = [line.removeprefix("setup: ") for line in run.stderr.splitlines()]
    assert said[0].startswith("2 to 10 minutes")
    count = sum(" - " in line for line in said)
    assert count > 10
    assert said[1] == f"  {count} of Debian's packages, which may take {40 * count} MB"
    assert said[2] == "  Python packages in .venv, which may take 1000 MB"
    steps = ("apt-get update", "apt-get install", r"making the Python environment \.venv",
             r"installing \d+ Python packages into \.venv")  # fmt: skip
    for step in steps:
        assert re.search(rf"^{step} \.\.\.\n{step}: done in \d+ s$", "\n".join(said), re.M), step
    assert said[-1] == ".venv is ready"


def test_on_a_terminal_a_step_shows_the_last_line_of_what_it_runs(fresh_debian):
    ours, theirs = pty.openpty()
    done = subprocess.Popen([fresh_debian["script"]], env=fresh_debian["env"], stderr=theirs)
    os.close(theirs)
    text = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal, contextlib.suppress(OSError):
        while piece := terminal.read(4096):  # OSError: nobody writes to it any more
            text += piece
    assert done.wait(timeout=600) == 0
    assert re.search(rb"packages into .venv, \d+ s: Collecting numpy", text), text
    assert re.search(rb"packages into .venv: done in \d+ s", text), text


@pytest.mark.slow
def test_a_changed_list_of_packages_makes_the_environment_stale(tmp_path):
    """A copy of the tree whose pyproject.toml changed since its .venv was made."""
    (tmp_path / "scripts").mkdir()
    script = shutil.copy(SETUP, tmp_path / "scripts" / "setup")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".trapless-stamp-run").write_text("something older\n")
    run = setup("--check-only", script=script)
    assert run.returncode == 1
    assert ".venv is missing or older than the dependency lists" in run.stderr


@pytest.mark.slow
def test_an_environment_that_cannot_be_made_leaves_the_old_one(tmp_path):
    """python3 here is one that cannot make environments."""
    (tmp_path / "scripts").mkdir()
    script = shutil.copy(SETUP, tmp_path / "scripts" / "setup")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "old").write_text("kept")
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(
        "#!/bin/sh\n"
        '[ "$1 $2" != "-m venv" ] || { mkdir "$3"; echo "no space left"; exit 1; }\n'
        f'exec {shutil.which("python3")} "$@"\n'
    )
    python.chmod(0o755)
    run = setup(script=script, env=os.environ | {"PATH": f"{python.parent}:{os.environ['PATH']}"})
    assert run.returncode == 1
    assert "no space left" in run.stderr and "making .venv failed" in run.stderr
    assert (tmp_path / ".venv" / "old").read_text() == "kept"
    assert not (tmp_path / ".venv.new").exists()


@pytest.mark.slow
def test_a_disk_without_room_is_said_before_the_work(tmp_path):
    """The checkout is on a disk of a few megabytes, and has no environment yet."""
    script = (
        'mount -t tmpfs -o size=8m none "$1" && cd "$1" && mkdir scripts && '
        'cp "$2/pyproject.toml" . && cp "$2/scripts/setup" scripts && exec scripts/setup'
    )
    run = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", tmp_path, ROOT],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 1
    assert re.search(r".venv may take 1000 MB, and the disk of .* has [78] MB free", run.stderr)
    assert "making the Python" not in run.stderr


def test_an_unknown_argument_is_wrong_usage():
    run = setup("--fast")
    assert run.returncode == 2
    assert "--fast" in run.stderr


def test_every_package_has_a_proof_and_a_purpose():
    _, *lists = SETUP.read_text().split("needs='\n")
    assert len(lists) == 2
    for text in lists:
        rows = [line.split("|") for line in text.split("\n'\n")[0].splitlines()]
        assert len(rows) > 10
        for row in rows:
            assert len(row) == 3 and all(row), row
