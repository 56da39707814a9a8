# SPDX-License-Identifier: GPL-2.0-only
"""The model's plugin for the QEMU on this machine: which one it takes, and how it is given.

This file owns what QEMU is asked and the errors when the two do not fit; the plugin is
model/plugin.c.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

from trapless.base import built_programs
from trapless.base.console import TraplessError
from trapless.vm import qemu

# First release of QEMU with it, the release that no longer has it, version of the interface.
APIS = (((7, 0), (9, 0), 1), ((9, 2), (99, 0), 4))

KERNEL_WORDS = "no5lvl transparent_hugepage=never"
"""For the guest's kernel: small pages for programs, whose sizes the model does not see."""


def argument(
    config: Path, output: Path, binary: str | None = None, library: Path | None = None
) -> str:
    """The value of QEMU's -plugin: the model reads `config` and writes rows into `output`.

    A TraplessError says why the QEMU (the lab's, if none is named) cannot take it. `library` is a
    plugin that was made for that QEMU elsewhere; normally it is file().
    """
    for path in (config, output):
        if "," in str(path):
            raise TraplessError(f"{path}: QEMU's plugins take no file with a comma in its name")
    plugin = library or file(binary if binary is not None else qemu.binary())
    return f"{plugin},config={config.absolute()},output={output.absolute()}"


def file(binary: str) -> Path:
    """The plugin for that QEMU, built."""
    return built_programs.find(f"model/trapless-model-{api(binary)}.so")


@cache
def api(binary: str) -> int:
    """The version of the plugin interface to use with that QEMU."""
    said = _ask(binary, "--version")
    match = re.search(r"version (\d+)\.(\d+)", said)
    if match is None:
        raise TraplessError(f"{binary} does not say its version")
    version = int(match[1]), int(match[2])
    chosen = next((number for first, gone, number in APIS if first <= version < gone), None)
    if chosen is None:
        releases = " and ".join(f"{first[0]}.{first[1]}" for first, _, _ in APIS)
        raise TraplessError(
            f"{binary} is QEMU {version[0]}.{version[1]}, whose plugin interface the model does "
            f"not know; it knows those that came with {releases}"
        )
    if not re.search(r"^-plugin\b", _ask(binary, "-help"), re.MULTILINE):
        raise TraplessError(f"{binary} was built without plugins, which the model needs")
    return chosen


def _ask(binary: str, question: str) -> str:
    try:
        run = subprocess.run(
            [binary, question], capture_output=True, text=True, timeout=600, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise TraplessError(f"{binary} {question}: {error}") from error
    return run.stdout
