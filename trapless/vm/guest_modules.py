# SPDX-License-Identifier: GPL-2.0-only
"""Which of a kernel's own modules a guest must load, and in which order.

This file reads the indexes that depmod made (modules.dep, modules.builtin), and decompresses
modules, since the guest cannot. A kernel without a modules folder has everything built in.
"""

from __future__ import annotations

import gzip
import lzma
import subprocess
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from trapless.base.console import TraplessError

ASKED_BY_NAME = {"rdma_rxe": ("crc32_generic", "ib_uverbs", "rdma_ucm")}
"""Modules that a module asks for when it is used, and its users. No index has them; a guest without
modprobe cannot answer. Those that a kernel has built in, or no longer has, are left out."""

_SUFFIXES = (".ko.xz", ".ko.zst", ".ko.gz", ".ko")


def module_name(path: str) -> str:
    """The name under which the kernel knows the module in file `path`."""
    name = PurePosixPath(path).name
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name.replace("-", "_")


def load_order(modules_dir: Path | None, wanted: Iterable[str]) -> list[Path]:
    """The files to load for the modules `wanted`, dependencies first, without built-in modules."""
    wanted = list(wanted)
    if modules_dir is None or not wanted:
        return []
    index = _dependencies(modules_dir)
    builtin = {module_name(line) for line in _lines(modules_dir / "modules.builtin")}
    order: dict[str, None] = {}
    names = [name.replace("-", "_") for name in wanted]
    asked = [more for name in names for more in ASKED_BY_NAME.get(name, ()) if more in index]
    for name in (*names, *asked):
        if name in builtin:
            continue
        if name not in index:
            raise TraplessError(
                f"the kernel has no module {name} (looked in {modules_dir}); another kernel may: "
                "see --kernel"
            )
        own, needed = index[name]
        # modules.dep lists a module's needs so that each comes before those it needs itself.
        order.update(dict.fromkeys((*reversed(needed), own)))
    return [modules_dir / path for path in order]


def read_module(path: Path) -> bytes:
    """The module's ELF file, decompressed where Debian compresses it."""
    data = path.read_bytes()
    if path.name.endswith(".xz"):
        return lzma.decompress(data)
    if path.name.endswith(".gz"):
        return gzip.decompress(data)
    if path.name.endswith(".zst"):
        return subprocess.run(["zstd", "-dc"], input=data, capture_output=True, check=True).stdout
    return data


def _dependencies(modules_dir: Path) -> dict[str, tuple[str, list[str]]]:
    index = {}
    for line in _lines(modules_dir / "modules.dep"):
        own, _, needed = line.partition(":")
        index[module_name(own)] = (own, needed.split())
    return index


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError as error:
        raise TraplessError(
            f"{path}: {error.strerror}; the kernel's folder is not as depmod leaves it: if it is "
            "in the cache, remove it and run again"
        ) from error
