# SPDX-License-Identifier: GPL-2.0-only
"""`make install` under a prefix: the command works from there, shells complete it, nothing stays.

What the library's part holds is tested in tests/unit/lib.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packages.test_rust_binding import cargo
from trapless import __version__

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ("Makefile", "pyproject.toml", "lib", "include", "examples/first.c")
ARGUMENTS = ("PREFIX=/opt/trapless", "MAKEFLAGS=")


def make(target: str, root: Path) -> None:
    subprocess.run(["make", "-s", target, f"DESTDIR={root}", *ARGUMENTS], cwd=ROOT, check=True)


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("root")
    make("install", root)
    return root / "opt/trapless"


def trapless(installed: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    python = installed / "lib/trapless/.venv"
    if not python.exists():  # an installation uses the machine's Python, which may lack click
        python.symlink_to(ROOT / ".venv")
    return subprocess.run(
        [installed / "bin/trapless", *arguments],
        env=os.environ | env,
        cwd="/",
        capture_output=True,
        text=True,
    )


def test_the_command_works_from_there(installed):
    assert trapless(installed, "--version").stdout == f"trapless {__version__}\n"
    assert "batch-size" in trapless(installed, "evaluate", "--list").stdout
    done = trapless(installed, "stat", "--software", "--", "true")
    assert "is not there" not in done.stderr and "Traceback" not in done.stderr


def test_it_holds_the_sources_and_programs_that_it_needs(installed):
    tree = installed / "lib/trapless"
    for name in ("kmod/Kbuild", "include/trapless.h", "lib/batch/batch.c", "build/examples/first",
                 "build/sampler/trapless-sampler", "build/model/trapless-model-1.so"):  # fmt: skip
        assert (tree / name).is_file(), name
    assert {path.name for path in (ROOT / "LICENSES").iterdir()} == {
        path.name for path in (installed / "share/licenses/trapless").iterdir()
    }


@pytest.mark.parametrize(
    ("shell", "file"),
    [
        ("bash", "bash-completion/completions/trapless"),
        ("zsh", "zsh/site-functions/_trapless"),
        ("fish", "fish/vendor_completions.d/trapless.fish"),
    ],
)
def test_a_shell_completes_it(installed, shell, file):
    script = (installed / "share" / file).read_text()
    assert f"_TRAPLESS_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        done = subprocess.run([shell, "-n", installed / "share" / file], capture_output=True)
        assert done.returncode == 0, done.stderr
    words = {"COMP_WORDS": "trapless mod", "COMP_CWORD": "1" if shell != "fish" else "mod"}
    done = trapless(installed, _TRAPLESS_COMPLETE=f"{shell}_complete", **words)
    assert "module" in done.stdout


def test_other_languages_find_the_library(installed, tmp_path):
    """A copy of the crate, out of the checkout, and Python's package."""
    env = os.environ | {"LD_LIBRARY_PATH": str(installed / "lib")}
    python = env | {"PYTHONPATH": str(ROOT / "lib/bindings/python")}
    first = ROOT / "lib/bindings/python/examples/first.py"
    assert "3 calls" in run(sys.executable, first, env=python)
    if shutil.which("cargo") is None:
        pytest.skip("cargo is missing: scripts/setup installs it")
    listed = run("git", "-C", ROOT, "ls-files", "lib/bindings/rust").splitlines()
    for name in listed or pytest.fail("git lists no file of the crate"):
        copied = tmp_path / Path(name).relative_to("lib/bindings/rust")
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copied)
    env |= {"PKG_CONFIG_SYSROOT_DIR": str(installed.parents[1]), "CARGO_TARGET_DIR": "target"}
    env |= {"PKG_CONFIG_PATH": str(installed / "lib/pkgconfig")}
    words = ("cargo", "run", "--offline", "--quiet", "--example", "first")
    assert "3 calls" in run(*words, env=env, cwd=tmp_path)
    needed = run("readelf", "-d", tmp_path / "target/debug/examples/first")
    assert "libtrapless-ffi.so.0" in needed


@pytest.mark.parametrize("name", ["my projects", "it's R&D", 'a "quoted" #1 $HOME'])
def test_folders_of_crates_may_have_any_name(name, tmp_path):
    """That of the checkout, and that of a crate of somebody else."""
    checkout = tmp_path / name
    for folder in ("lib", "include"):
        shutil.copytree(
            ROOT / folder, checkout / folder, ignore=shutil.ignore_patterns("python", "node", "go")
        )
    crate = Path("lib/bindings/rust")
    assert "3 calls" in cargo("run", "--quiet", "--example", "first", folder=checkout / crate)
    user = checkout / "user"
    (user / "src").mkdir(parents=True)
    (user / "src/main.rs").write_text("fn main() { trapless::Batch::new(8).unwrap(); }")
    (user / "Cargo.toml").write_text(
        '[package]\nname = "user"\nversion = "0.1.0"\nedition = "2021"\n'
        f'[dependencies]\ntrapless = {{ path = "{ROOT / crate}" }}\n'
    )
    cargo("run", "--quiet", folder=user)


def run(*command: str | Path, **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_command_that_does_not_run_ends_it_before_anything_is_made(tmp_path):
    """As where python3 lacks click: the command writes the completion, and would do so last."""
    words = ["make", "install", f"DESTDIR={tmp_path}", f"BUILD={tmp_path}/build", "TRAPLESS=false"]
    done = subprocess.run([*words, *ARGUMENTS], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "command-runs" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_uninstalling_leaves_no_file_and_no_folder_that_is_empty(tmp_path):
    make("install", tmp_path)
    others = tmp_path / "opt/trapless/share/man/man1/others.1"
    others.write_text("another's page")
    make("uninstall", tmp_path)
    above = set(others.parents) - {tmp_path, *tmp_path.parents}
    assert set(tmp_path.rglob("*")) == {others, *above}


def copy(to: Path) -> Path:
    """A checkout of the library alone."""
    for name in LIBRARY:
        source = ROOT / name
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, to / name)
    return to


COMPILE = 'eval "${CC:-gcc} -o first first.c $(pkg-config --cflags --libs trapless)"'


def compile_first(folder: Path, pkgconfig: Path, **env: str) -> Path:
    env |= {"PKG_CONFIG_PATH": str(pkgconfig)}
    subprocess.run(COMPILE, shell=True, check=True, env=os.environ | env, cwd=folder)
    return folder / "first"


def test_a_checkout_may_have_any_name_also_as_a_copy(tmp_path):
    """The copy's file for pkg-config names the copy."""
    tree = copy(tmp_path / "my own checkout")
    for name in (tree.name, 'it\'s R&D | a "copy" #2'):
        tree = tree.rename(tree.with_name(name))
        run("make", "-s", "-C", tree, "lib")
        first = compile_first(tree / "examples", tree / "build/lib")
        env = os.environ | {"LD_LIBRARY_PATH": str(tree / "build/lib")}
        assert "3 calls" in run(first, env=env)


def test_a_program_starts_after_an_installation_to_any_prefix(tmp_path):
    prefix = tmp_path / "prefix"
    words = ["make", "-s", "install-lib", f"PREFIX={prefix}", "MAKEFLAGS="]
    assert "ldconfig" in run(*words, cwd=ROOT)
    shutil.copy(ROOT / "examples/first.c", tmp_path)
    assert "3 calls" in run(compile_first(tmp_path, prefix / "lib/pkgconfig"))


def test_the_library_is_built_with_musl_too(tmp_path):
    run("make", "-s", "lib", "CC=musl-gcc", f"BUILD={tmp_path}", "MAKEFLAGS=", cwd=ROOT)
    page = " ".join((ROOT / "docs/install.md").read_text().split())
    flags = page.partition("for musl also needs `")[2].partition("`")[0]
    shutil.copy(ROOT / "examples/first.c", tmp_path)
    first = compile_first(tmp_path, tmp_path / "lib", CC=f"musl-gcc {flags} -static")
    assert "3 calls" in run(first)
