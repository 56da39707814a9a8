# SPDX-License-Identifier: GPL-2.0-only
"""The conditions of a machine that change the counts of its VMs, and so must be equal on all
machines.

A task brings the guest's kernel and files and the model along (vm.py). This file owns what it does
not bring, the comparison, and the remedies for differences.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from trapless import __version__
from trapless.base.cache import sha256_file, sha256_files
from trapless.base.console import TraplessError
from trapless.vm import qemu

NAME = "name"
"""The condition that may differ: the machine's name."""

FIRMWARE = ("bios-256k.bin", "linuxboot_dma.bin", "kvmvapic.bin")
"""The firmware, which QEMU runs before the guest's kernel. It comes in packages of its own."""

REMEDIES = {
    "processor": "use machines of one architecture",
    "Trapless": "bring the checkout or installation there to the same state, and restart its "
    "`dask worker`",
    "QEMU": "install the same package of QEMU there, or leave the machine out",
    "firmware": "install the same package of QEMU's firmware (on Debian: seabios) there",
}


@cache
def conditions() -> dict[str, str]:
    """The conditions of this machine; a TraplessError where it cannot run VMs."""
    binary = qemu.binary()
    return {
        NAME: platform.node() or "unnamed",
        "processor": platform.machine(),
        "Trapless": f"{__version__}, source {_source()}",
        "QEMU": _ask(binary, "--version").splitlines()[0].removeprefix("QEMU emulator version "),
        "firmware": _firmware(_ask(binary, "-L", "help").splitlines()),
    }


def difference(ours: Mapping[str, str], theirs: Mapping[str, str], where: str) -> str:
    """Why VMs of the worker at the address `where` would count differently; empty if they do
    not."""
    for what, remedy in REMEDIES.items():
        here, there = ours.get(what, "unknown"), theirs.get(what, "unknown")
        if here != there:
            return (
                f"the worker {where} on the machine {theirs.get(NAME, 'unnamed')} would not count "
                f"as this machine does: {what} is '{there}' there and '{here}' here; {remedy}"
            )
    return ""


def _source() -> str:
    """A hash of the files of this package, in a checkout or an installation."""
    package = Path(__file__).resolve().parents[2]
    return sha256_files(package, package.rglob("*.py"))[:12]


def _firmware(folders: list[str]) -> str:
    """A hash of the firmware: of each file, the first that QEMU would find."""
    digest = hashlib.sha256()
    for name in FIRMWARE:
        paths = [Path(folder) / name for folder in folders]
        path = next((path for path in paths if path.is_file()), None)
        digest.update(f"{name} {sha256_file(path) if path else 'is missing'}\n".encode())
    return digest.hexdigest()[:12]


def _ask(binary: str, *words: str) -> str:
    try:
        run = subprocess.run(
            [binary, *words], capture_output=True, text=True, timeout=600, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise TraplessError(f"{binary} {' '.join(words)}: {error}") from error
    return run.stdout
