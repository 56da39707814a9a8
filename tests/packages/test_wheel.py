# SPDX-License-Identifier: GPL-2.0-only
"""What pip installs: the command and the sources that it builds from, and it works.

Each environment here is a new one, filled from the registry that pip is set to use: one with the
oldest packages that pyproject.toml allows and this Python has builds of, one with the newest. The
newest are what .venv has for all other tests, so `make test` leaves that environment to CI.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCES = ("eval", "examples", "include", "kmod", "lib", "model", "sampler", "stat")
LOWEST = {
    "click": "8.1.3", "jinja2": "3.1.2", "matplotlib": "3.6.3", "pyelftools": "0.29",
    "rich": "13.0.0",
}  # fmt: skip
"""What Debian 12 has of each; of rich it has 13.3.1."""
NUMPY_OF_ITS_TIME = "numpy<2"  # matplotlib 3.6 was built with it, and does not say so


def run(*command: str | Path, **options) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1200, **options)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this tree, built by pip alone."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True).stdout
    run(sys.executable, "-m", "pip", "-q", "wheel", "--no-deps", "-w", folder, ROOT)
    after = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True).stdout
    assert after == tree, "building left something behind that git does not ignore"
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module", params=["lowest", pytest.param("newest", marks=pytest.mark.long)])
def environment(request, wheel, tmp_path_factory) -> Path:
    """bin/ of a new environment with the wheel and all that it needs, old or new."""
    folder = tmp_path_factory.mktemp(request.param)
    run(sys.executable, "-m", "venv", folder)
    bounds = [f"{name}=={version}" for name, version in LOWEST.items()] + [NUMPY_OF_ITS_TIME]
    chosen = bounds if request.param == "lowest" else []
    run(folder / "bin/pip", "-q", "install", "--only-binary=:all:", wheel, *chosen)
    return folder / "bin"


def outside() -> dict[str, str]:
    """Nothing that would show the checkout to an installed command."""
    return {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}


def test_the_lowest_versions_are_the_bounds():
    for requirement in PROJECT["dependencies"]:
        name, low = re.match(r"([\w-]+)>=([\d.]+),<", requirement).groups()
        numbers = LOWEST[name].split(".")
        assert numbers[: len(low.split("."))] == low.split("."), requirement


def test_the_wheel_holds_the_package_and_its_sources_alone(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"trapless", f"trapless-{PROJECT['version']}.dist-info"}
    listed = run("git", "-C", ROOT, "ls-files", "trapless", *SOURCES).splitlines()
    wanted = {name if name.startswith("trapless/") else f"trapless/tree/{name}" for name in listed}
    wanted |= {"trapless/tree/Makefile", "trapless/tree/pyproject.toml"}
    assert {name for name in names if name.startswith("trapless/")} == wanted


def test_the_library_for_python_has_a_wheel_of_its_own(tmp_path):
    folder = ROOT / "lib/bindings/python"
    run(sys.executable, "-m", "pip", "-q", "wheel", "--no-deps", "-w", tmp_path, folder)
    (built,) = tmp_path.glob("libtrapless-*.whl")
    names = {name for name in zipfile.ZipFile(built).namelist() if "dist-info" not in name}
    assert names == {f"libtrapless/{path.name}" for path in folder.glob("libtrapless/*.*")}
    assert "libtrapless/py.typed" in names


def test_a_copy_without_git_gives_the_same_wheel(wheel, tmp_path):
    """What a checkout that was worked in holds besides is left out: objects, caches, editors'."""
    copy = tmp_path / "copy"
    copy.mkdir()
    listed = run("git", "-C", ROOT, "ls-files", "-z", "-co", "--exclude-standard").split("\0")
    there = "\0".join(name for name in listed if (ROOT / name).is_file())
    copying = f"tar -C '{ROOT}' --null -T - -c | tar -x -C '{copy}'"
    run("sh", "-c", copying, input=there)
    for litter in (
        "build/lib/libtrapless.a", "kmod/ring/batch.o", "kmod/trapless.ko", "kmod/.main.o.cmd",
        "lib/batch.o", "trapless/__pycache__/cli.pyc", "results/x", "trapless.egg-info/PKG-INFO",
    ):  # fmt: skip
        (copy / litter).parent.mkdir(parents=True, exist_ok=True)
        (copy / litter).write_text("left behind")
    run(sys.executable, "-m", "pip", "-q", "wheel", "--no-deps", "-w", tmp_path, copy)
    (built,) = tmp_path.glob("*.whl")
    assert sorted(zipfile.ZipFile(built).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_every_licence_comes_along(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for path in (ROOT / "LICENSES").iterdir():
        assert any(name.endswith(f".dist-info/licenses/LICENSES/{path.name}") for name in names)


HELP = """
import subprocess, sys, click
from trapless.cli import cli
def walk(group, path=()):
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from walk(command, (*path, name))
for path in walk(cli):
    done = subprocess.run([sys.argv[1], *path, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "Usage: trapless" in done.stdout, (path, done)
    print(*path)
"""


def test_every_command_explains_itself(environment, tmp_path):
    program = environment / "trapless"
    paths = run(environment / "python", "-c", HELP, program, cwd=tmp_path, env=outside())
    assert len(paths.splitlines()) > 15


def test_it_says_its_version(environment, tmp_path):
    said = run(environment / "trapless", "--version", cwd=tmp_path, env=outside())
    assert said == f"trapless {PROJECT['version']}\n"


def test_doctor_is_content_with_its_packages(environment, tmp_path):
    text = run(environment / "trapless", "doctor", cwd=tmp_path, env=outside())
    assert "yes  Python packages" in text


def test_the_lab_works_from_the_package(environment, tmp_path):
    run(environment / "trapless", "lab", "--", "true", cwd=tmp_path, env=outside())


def test_saved_results_are_drawn(environment, tmp_path):
    saved = tmp_path / "results"
    saved.mkdir()
    run("cp", "-r", ROOT / "docs/results/6.1/ls", saved)
    text = run(environment / "trapless", "report", saved, cwd=tmp_path, env=outside())
    assert "ls" in text and (saved / "report.html").stat().st_size > 10_000


def test_programs_are_built_into_the_cache_when_one_is_wanted(environment, tmp_path):
    """trapless-count of the package: `true` is run by it, or it says why it cannot count."""
    env = outside() | {"TRAPLESS_CACHE": str(tmp_path / "cache")}
    command = [environment / "trapless", "stat", "--software", "--", "true"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert "Traceback" not in done.stderr and "is not there" not in done.stderr
    (built,) = (tmp_path / "cache" / "build").glob("*/stat/trapless-count")
    assert os.access(built, os.X_OK)
    package = next((environment.parent / "lib").glob("*/site-packages/trapless"))
    assert not list(package.rglob("*.o")) and not (package / "tree" / "build").exists()
