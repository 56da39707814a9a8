# SPDX-License-Identifier: GPL-2.0-only
"""The programs that `make workloads` builds: found, and built where nobody else builds them.

The owner of a checkout builds them, and an installation has them. A package that pip installed, or
a checkout that may not be written to, has its programs built into the cache when one is wanted.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from trapless.base import cache, tools
from trapless.base.architecture import AMD64, Architecture
from trapless.base.console import ConsoleProgress, Progress, TraplessError
from trapless.base.paths import build_dir, repo_root

TOOLS = {"make": "make", "gcc": "gcc libc6-dev liburing-dev", "ar": "binutils"}
BUILD_JOBS = 2
FOLDERS = ("eval", "examples", "sampler", "stat")
"""Of build/, where `make workloads` puts programs."""


def find(path: str, arch: Architecture = AMD64) -> Path:
    """A program by its path below build/, or below build/ARCH for another processor."""
    if arch != AMD64 and arch.is_foreign:
        path = f"{arch.name}/{path}"
    found = build_dir() / path
    if not found.exists() and not build_dir().is_relative_to(repo_root()):
        with ConsoleProgress() as progress:  # it takes a minute, which the caller cannot foresee
            build(progress)
    if not found.exists():
        remedy = f"make -C {shlex.quote(str(repo_root()))} workloads"
        raise TraplessError(
            f"{found} is not there; in a checkout `{remedy}` builds all that the commands run"
        )
    return found


def remedy(name: str, cwd: Path | None = None) -> str:
    """The end of the message that there is no program `name`, where it would be one of these."""
    path = Path(os.path.abspath(os.path.join(cwd or "", name)))
    ours = "/" in name and any(path.is_relative_to(build_dir() / folder) for folder in FOLDERS)
    return "; `make workloads` builds the examples and experiments" if ours else ""


def build(progress: Progress) -> None:
    """Bring all of them up to date; an installation has them built already."""
    _make(["workloads"], TOOLS, build_dir(), progress)


def cross_build(
    arch: Architecture, paths: Sequence[str], libraries: Path, progress: Progress
) -> None:
    """Bring programs for another processor up to date, by its cross compiler and the libraries in
    an unpacked root."""
    into, root = build_dir() / arch.name, repo_root()
    # as a user's `make BUILD=` names it: lists of what objects depend on know them by that name
    named = into.relative_to(root) if into.is_relative_to(root) else into
    compiler, archiver = arch.tool("gcc"), arch.tool("ar")
    needed = {"make": "make", compiler: f"gcc-{arch.triplet}", archiver: f"gcc-{arch.triplet}"}
    found = f"-L{libraries}/usr/lib/{arch.triplet}"
    words = [f"CC={compiler} {found}", f"AR={archiver}", f"BUILD={named}"]
    _make([*words, *(f"{named}/{path}" for path in paths)], needed, into, progress)


def _make(words: Sequence[str], needed: Mapping[str, str], into: Path, progress: Progress) -> None:
    root = repo_root()
    if not (root / "Makefile").exists():
        return
    tools.require_tools(needed, "building the workloads")
    command = ["make", "-C", str(root), "-s", f"-j{BUILD_JOBS}", *words]
    with ExitStack() as stack:
        if not into.is_relative_to(root):
            lock = into.with_name(f"{into.name}.lock")
            stack.enter_context(cache.locked(lock, "building the workloads", progress))
            command.append(f"BUILD={into}")
        progress.step("building the workloads")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    progress.done()
    if done.returncode:
        raise TraplessError(f"building the workloads failed:\n{done.stderr.strip()}")
