# SPDX-License-Identifier: GPL-2.0-only
"""What an ELF program needs to run: its loader and, transitively, its shared libraries.

This file reads the ELF file and searches as ld.so does (ld.so(8)): DT_RPATH, LD_LIBRARY_PATH,
DT_RUNPATH, the cache that ldconfig made, the default folders. `ldd` would execute the program's own
loader on this machine, which must not happen to a program that is meant for a VM. This file knows
nothing of guests, and it cannot know what a program opens by dlopen().
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from trapless.base.architecture import AMD64, Architecture
from trapless.base.console import TraplessError

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

ELF_MAGIC = b"\x7fELF"
DEFAULT_FOLDERS = (
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
)

# The errors, beside ELFError, that pyelftools raises where a file's offsets and sizes are wrong.
_DAMAGE = (OSError, ValueError, OverflowError, KeyError, AttributeError, AssertionError)


@dataclass(frozen=True)
class Needs:
    """The needs of one ELF file, as they are written in it."""

    loader: str | None  # PT_INTERP; None when linked statically or a library
    libraries: tuple[str, ...]  # DT_NEEDED
    rpath: tuple[str, ...]  # DT_RPATH, which counts only without DT_RUNPATH
    runpath: tuple[str, ...]  # DT_RUNPATH


def needs(path: Path, arch: Architecture = AMD64) -> Needs:
    """Read what the ELF file `path` asks for, which must be one for `arch`."""
    from elftools.common.exceptions import ELFError  # only here: many runs of the lab read no file
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as file:
        try:
            elf = ELFFile(file)
            if elf.header["e_machine"] != arch.elf or elf.elfclass != 64:
                wanted = "x86-64 (try --host-root)" if arch == AMD64 else arch.name
                raise TraplessError(
                    f"{path} is a program for {elf.get_machine_arch()}, {elf.elfclass} bits; "
                    f"the lab copies only those for {wanted}"
                )
            return _read(elf)
        except (ELFError, *_DAMAGE) as error:
            raise TraplessError(f"{path} is a damaged ELF file: {error}") from error


def _read(elf: ELFFile) -> Needs:
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.segments import InterpSegment

    loader = None
    tags: dict[str, list[str]] = {"DT_NEEDED": [], "DT_RPATH": [], "DT_RUNPATH": []}
    for segment in elf.iter_segments():
        if isinstance(segment, InterpSegment):
            loader = segment.get_interp_name()
        elif isinstance(segment, DynamicSegment):
            for tag in segment.iter_tags():
                kind = tag.entry.d_tag
                if kind in tags:  # pyelftools keeps the string as .needed, .rpath, .runpath
                    value = str(getattr(tag, kind.removeprefix("DT_").lower()))
                    tags[kind] += [value] if kind == "DT_NEEDED" else value.split(":")
    return Needs(
        loader,
        tuple(tags["DT_NEEDED"]),
        () if tags["DT_RUNPATH"] else tuple(tags["DT_RPATH"]),
        tuple(tags["DT_RUNPATH"]),
    )


def dependencies(program: Path, arch: Architecture = AMD64) -> list[Path]:
    """Every file that ld.so maps to start `program`, loader first. Symbolic links are not resolved:
    the loader of the guest will look for the same names.
    """
    if arch.is_foreign:
        if needs(program, arch).loader is not None or needs(program, arch).libraries:
            raise TraplessError(
                f"{program} needs shared libraries for {arch.name}, which this machine does not "
                "have: link it with -static"
            )
        return []
    paths: dict[str, Path] = {}  # by the name asked for
    pending: list[tuple[Path, tuple[str, ...]]] = [(program, ())]  # with inherited DT_RPATH
    loader: Path | None = None
    while pending:
        path, inherited = pending.pop(0)
        wanted = needs(path)
        if wanted.loader and loader is None:
            loader = Path(wanted.loader)
        rpath = (*_expanded(wanted.rpath, path), *inherited)
        for name in wanted.libraries:
            if name not in paths:
                paths[name] = _find(name, path, rpath, _expanded(wanted.runpath, path))
                pending.append((paths[name], rpath))
    libraries = [path for path in paths.values() if loader is None or path.name != loader.name]
    return libraries if loader is None else [loader, *libraries]


def _expanded(folders: tuple[str, ...], owner: Path) -> tuple[str, ...]:
    origin = str(owner.resolve().parent)
    return tuple(
        folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
        for folder in folders
        if folder
    )


def _find(name: str, owner: Path, rpath: tuple[str, ...], runpath: tuple[str, ...]) -> Path:
    if "/" in name:
        candidates: Iterator[str] = iter((name,))
    else:
        candidates = _candidates(name, rpath, runpath)
    for candidate in candidates:
        if os.path.isfile(candidate):
            return Path(candidate)
    raise TraplessError(
        f"{owner} needs the library {name}, which is not on this machine; install the package "
        "that has it, link it statically, or name its folder by LD_LIBRARY_PATH"
    )


def _candidates(name: str, rpath: tuple[str, ...], runpath: tuple[str, ...]) -> Iterator[str]:
    environment = os.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":")
    for folder in (*rpath, *filter(None, environment), *runpath):
        yield f"{folder}/{name}"
    if name in _loader_cache():
        yield _loader_cache()[name]
    for folder in DEFAULT_FOLDERS:
        yield f"{folder}/{name}"


@cache
def _loader_cache() -> dict[str, str]:
    """Library name -> path, from ld.so's cache; empty where the machine has none."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    try:
        listing = subprocess.run(
            ["ldconfig", "-p"],
            env={"PATH": path, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    entries: dict[str, str] = {}
    for line in listing.splitlines():
        name, arrow, target = line.strip().partition(" => ")
        if arrow and "x86-64" in name:
            entries.setdefault(name.split(" (")[0], target)
    return entries
