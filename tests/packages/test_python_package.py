# SPDX-License-Identifier: GPL-2.0-only
"""What pip makes of the folder of the library for Python, and of the source archive that it gives:
a package that needs neither the checkout nor a library beside it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import libtrapless
from tests.packages.conftest import BINDING, run_python

ROOT = Path(__file__).resolve().parents[2]
EXTENSION = "libtrapless/_ring.abi3.so"


def run(*command: str | Path, **options) -> str:
    words = [str(word) for word in command]
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=1200, env=bare, **options)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def pip(tmp_path_factory) -> Path:
    """pip of a new environment, which has what an sdist is built with."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin/pip", "-q", "install", "setuptools>=77,<100")
    return folder / "bin/pip"


@pytest.fixture(scope="module")
def archive(pip, tmp_path_factory) -> Path:
    """The source archive of the folder."""
    folder = tmp_path_factory.mktemp("sdist")
    before = run("git", "status", "--porcelain", cwd=ROOT)
    run(pip.parent / "python", "setup.py", "-q", "sdist", "-d", folder, cwd=BINDING)
    assert run("git", "status", "--porcelain", cwd=ROOT) == before
    assert not (BINDING / "library").exists()
    (made,) = folder.glob("*.tar.gz")
    return made


def test_one_wheel_serves_every_python_and_has_the_library_inside(pip, archive, tmp_path):
    """It is built from the archive: nothing of the checkout is there then."""
    run(pip, "-q", "wheel", "--no-deps", "-w", tmp_path, archive)
    (wheel,) = tmp_path.glob("*.whl")
    assert "-cp311-abi3-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as files:
        assert EXTENSION in files.namelist()
        files.extract(EXTENSION, tmp_path)
    needed = run("readelf", "-d", tmp_path / EXTENSION)
    assert "libc.so.6" in needed and "trapless" not in needed and "libpython" not in needed
    exported = run("nm", "-D", "--defined-only", tmp_path / EXTENSION).split()
    assert exported[2::3] == ["PyInit__ring"]
    run(pip, "-q", "install", wheel)
    said = run(pip.parent / "python", BINDING / "examples/first.py", cwd=tmp_path)
    assert "3 calls" in said


def test_a_build_says_what_the_machine_lacks(pip, tmp_path):
    words = [pip.parent / "python", "setup.py", "-q", "build_ext", "-b", tmp_path, "-t", tmp_path]
    environment = os.environ | {"CC": "/absent/cc"}
    done = subprocess.run(words, cwd=BINDING, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "absent: the C compiler /absent/cc. On Debian: apt-get install gcc" in done.stderr


def test_sub_interpreters_refuse_it():
    program = """
import _xxsubinterpreters as interpreters
inside = interpreters.create()
text = '''
try:
    import libtrapless
except ImportError as error:
    assert "main interpreter" in str(error) or "subinterpreters" in str(error), error
else:
    raise SystemExit("it was imported")
'''
interpreters.run_string(inside, text)
"""
    if sys.version_info >= (3, 13):
        program = program.replace("_xxsubinterpreters", "_interpreters")
    done = run_python("-c", program)
    assert done.returncode == 0, done.stderr


def test_it_has_the_version_of_its_package():
    text = (BINDING / "pyproject.toml").read_text()
    assert f'\nversion = "{libtrapless.__version__}"\n' in text


def test_it_may_be_imported_anew():
    program = """
import sys
import libtrapless
before = libtrapless.Batch
for name in [name for name in sys.modules if name.startswith("libtrapless")]:
    del sys.modules[name]
import libtrapless
with libtrapless.Batch() as batch:
    call = batch.add("getppid")
    batch.flush()
assert isinstance(call, libtrapless.Call) and before is libtrapless.Batch
"""
    done = run_python("-c", program)
    assert done.returncode == 0, done.stderr
