# SPDX-License-Identifier: GPL-2.0-only
"""The command with a Python that lacks packages: it says which, and how to get them.

The Python here starts without its site-packages (-S), and sees a folder with links to the packages
that the test wants to be there.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from trapless.cli import cli

ROOT = Path(__file__).resolve().parents[2]
START = "import sys; sys.path[:0] = sys.argv.pop(1).split(':'); sys.argv[0] = 'trapless'; " + (
    "from trapless.__main__ import main; main()"
)
FACES = (["--version"], ["--help"], ["doctor"], ["doctor", "--json"], ["doctor", "--calls"])


def argv(tmp_path, packages, *arguments):
    """The command line of a Python with nothing but `packages`."""
    for package in packages:
        origin = Path(find_spec(package).origin)
        (tmp_path / package).symlink_to(origin.parent)
    return [sys.executable, "-I", "-S", "-c", START, f"{ROOT}:{tmp_path}", *arguments]


def run(tmp_path, packages, *arguments):
    command = argv(tmp_path, packages, *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def complaints(text):
    """The lines of standard error but progress, which a busy machine shows: steps take longer."""
    return [line for line in text.splitlines() if not line.startswith("looking at ")]


@pytest.mark.parametrize("face", FACES, ids=" ".join)
def test_without_any_package_it_says_what_is_missing(tmp_path, face):
    done = run(tmp_path, (), *face)
    assert done.returncode == 1
    remedy = f"run `make -C {ROOT} setup`"
    assert done.stderr == f"trapless: Python lacks the package 'click'; {remedy}\n"


@pytest.mark.parametrize("face", FACES, ids=" ".join)
def test_with_click_alone_it_works(tmp_path, face):
    done = run(tmp_path, ("click",), *face)
    assert (done.returncode, complaints(done.stderr)) == (0, [])


def paths(group=cli, path=()):
    """Every command, as its words."""
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from paths(command, (*path, name))


EVERY_HELP = """
import json, sys
from click.testing import CliRunner
from trapless.cli import cli
for path in json.load(sys.stdin):
    done = CliRunner().invoke(cli, [*path, "--help"], prog_name="trapless")
    print(json.dumps([done.exit_code, done.output]))
"""


def test_with_click_alone_every_command_explains_itself(tmp_path):
    """All in one process, for starting Python takes longer than the help."""
    start = START.partition("from trapless")[0] + EVERY_HELP
    command = [start if word == START else word for word in argv(tmp_path, ("click",))]
    every = list(paths())
    done = subprocess.run(command, input=json.dumps(every), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(every) > 20
    for path, (status, text) in zip(every, answers, strict=True):
        assert status == 0, path
        assert text.startswith(" ".join(("Usage: trapless", *path))), path


def test_doctor_names_every_package_that_is_missing(tmp_path):
    text = run(tmp_path, ("click",), "doctor").stdout
    assert "no   Python packages: lacks" in text
    for package in ("jinja2", "matplotlib", "pyelftools", "rich"):
        assert package in text


@pytest.mark.parametrize("face", [["doctor"], ["doctor", "--calls", "epoll_*"]], ids=" ".join)
def test_a_terminal_is_given_lines_where_rich_is_missing(tmp_path, face):
    command = argv(tmp_path, ("click",), *face)
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        done = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE)
        os.close(theirs)
        text = b""
        try:
            while piece := terminal.read(4096):
                text += piece
        except OSError:  # a terminal that nobody writes to any more
            pass
        assert complaints(done.communicate(timeout=600)[1].decode()) == []
    assert done.returncode == 0
    assert b"Python packages" in text or b"epoll_wait" in text


@pytest.mark.parametrize(
    ("arguments", "package"),
    [(["lab", "--", "true"], "pyelftools"), (["ps"], "rich"), (["report", "."], "rich")],
    ids=str,
)
def test_a_command_that_needs_more_names_it(tmp_path, arguments, package):
    done = run(tmp_path, ("click",), *arguments)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"lacks the package '{package}'; run `make" in done.stderr


def test_the_lab_names_a_missing_package_before_it_fetches_a_kernel(tmp_path):
    """The cache is empty, and no mirror answers."""
    command = argv(tmp_path, ("click",), "lab", "--", "true")
    nothing = {"TRAPLESS_CACHE": str(tmp_path / "cache"), "TRAPLESS_MIRROR": "http://127.0.0.1:9"}
    done = subprocess.run(
        command, env=os.environ | nothing, capture_output=True, text=True, timeout=600
    )
    assert "lacks the package 'pyelftools'" in done.stderr, done.stderr
    assert not (tmp_path / "cache/kernels").exists()


def test_an_installation_in_an_environment_names_its_own_pip(tmp_path):
    """Outside of a checkout the remedy is that of the Python that runs."""
    (tmp_path / "trapless" / "base").mkdir(parents=True)
    for name in (
        "__init__.py",
        "__main__.py",
        "base/__init__.py",
        "base/missing.py",
        "base/statuses.py",
    ):
        (tmp_path / "trapless" / name).write_text((ROOT / "trapless" / name).read_text())
    (tmp_path / "trapless" / "cli.py").write_text("import elftools\n")
    code = "import sys; sys.path.insert(0, sys.argv[1]); from trapless.__main__ import main; main()"
    inside = f"sys.prefix = '/environment'; sys.executable = '/environment/bin/python'; {code[12:]}"
    for text, remedy in (
        (f"import sys; {inside}", "run `/environment/bin/python -m pip install pyelftools`"),
        (f"import sys; sys.prefix = sys.base_prefix; {code[12:]}", "apt-get install python3-pyelf"),
        (
            "import sys; sys.prefix = sys.base_prefix; sys.path.insert(0, sys.argv[1]); "
            "from trapless.base.missing import remedy; sys.exit(remedy('numpy', 'pyarrow'))",
            "apt-get install python3-numpy python3-pip && "
            "pip install --break-system-packages pyarrow",
        ),
    ):
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", text, tmp_path], capture_output=True, text=True
        )
        assert done.returncode == 1 and remedy in done.stderr
