# SPDX-License-Identifier: GPL-2.0-only
"""Finds the virtual machines on this host that can be observed: those whose RAM is a shared file.

Owns the reading of the command lines of running QEMU processes, whoever started them. The kernel/
folder reads what is in the memory.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trapless.peek.errors import PeekError


@dataclass(frozen=True)
class Machine:
    """A running virtual machine, and the file that is its RAM."""

    pid: int
    memory: Path
    name: str  # QEMU's option -name; empty without it

    def __str__(self) -> str:
        return f"process {self.pid}{f' ({self.name})' if self.name else ''}: {self.memory}"


def observable(proc: Path = Path("/proc")) -> list[Machine]:
    """The virtual machines whose memory this user may read, in the order of their pids."""
    machines = []
    for entry in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        with contextlib.suppress(OSError):  # ended meanwhile, or another user's
            argv = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if not re.match(r"qemu-system-|qemu-kvm|kvm$", os.path.basename(argv[0])):
                continue
            path = ram_file(argv)
            if path is None:
                continue
            memory = path_here(entry, path)
            if os.access(memory, os.R_OK):
                machines.append(Machine(int(entry.name), memory, _name(argv)))
    return machines


def the_one() -> Path:
    """The RAM of the only virtual machine that can be observed.

    PeekError says what to do where there is none, or more than one.
    """
    machines = observable()
    if len(machines) == 1:
        return machines[0].memory
    if not machines:
        raise PeekError(
            "no virtual machine on this host shares its memory; start one with "
            "`trapless lab --shared-memory FILE -- COMMAND`, or QEMU with "
            "-object memory-backend-file,id=ram,share=on,mem-path=FILE,size=SIZE "
            "-machine memory-backend=ram; or name an image with --ram FILE"
        )
    lines = "\n  ".join(map(str, machines))
    raise PeekError(
        f"{len(machines)} virtual machines can be observed; choose one with --ram:\n  {lines}"
    )


def ram_file(argv: Sequence[str]) -> str | None:
    """The file that a QEMU with the arguments `argv` shares its RAM by; None if it shares none."""
    backends: dict[str, dict[str, str]] = {}
    names: set[str] = set()
    for option, value in itertools.pairwise(argv):
        name = option.lstrip("-")
        if name == "object":
            keys = _keys(value)
            backends[keys.get("id", "")] = keys
        elif name in ("machine", "M", "numa"):
            keys = _keys(value)
            names |= {keys[key] for key in ("memory-backend", "memdev") if key in keys}
    if len(names) != 1:  # none, or one for each NUMA node: no file has all of the RAM
        return None
    backend = backends.get(names.pop(), {})
    shared = backend.get("share", "off").lower() in ("on", "true", "yes", "y")
    is_file = "memory-backend-file" in (backend.get(""), backend.get("qom-type"))
    return backend.get("mem-path") if shared and is_file else None


def monitor_sockets(argv: Sequence[str]) -> list[str]:
    """The paths of the sockets at which a QEMU with the arguments `argv` offers its QMP monitor."""
    devices: dict[str, str] = {}
    names: list[str] = []
    paths: list[str] = []
    for option, value in itertools.pairwise(argv):
        name = option.lstrip("-")
        keys = _keys(value)
        if name in ("qmp", "qmp-pretty") and value.startswith("unix:"):
            paths.append(keys[""].removeprefix("unix:"))
        elif name == "chardev" and keys.get("", keys.get("backend")) == "socket":
            devices[keys.get("id", "")] = keys.get("path", "")
        elif name == "mon" and keys.get("mode") == "control":
            names.append(keys.get("chardev", keys.get("", "")))
    return [path for path in (*paths, *(devices.get(one, "") for one in names)) if path]


def _keys(value: str) -> dict[str, str]:
    """The keys of QEMU's `type,key=value,...`, or of the same as JSON; the type has the key ""."""
    if value.startswith("{"):
        with contextlib.suppress(ValueError):
            return {key: str(one) for key, one in json.loads(value).items()}
        return {}
    words = [word.replace("\0", ",") for word in value.replace(",,", "\0").split(",")]
    pairs = (word.partition("=") for word in words)
    return {key if equals else "": text if equals else key for key, equals, text in pairs}


def path_here(process: Path, path: str) -> Path:
    """The path by which this process can open a path of another process."""
    descriptor = re.fullmatch(r"/dev/fd/(\d+)|/proc/self/fd/(\d+)", path)
    if descriptor:
        return process / "fd" / (descriptor[1] or descriptor[2])
    if os.path.isabs(path):
        return Path(path) if os.path.exists(path) else Path(f"{process}/root{path}")
    return Path(os.readlink(process / "cwd")) / path


def _name(argv: Sequence[str]) -> str:
    for option, value in itertools.pairwise(argv):
        if option.lstrip("-") == "name":
            keys = _keys(value)
            return keys.get("guest") or keys.get("", "")
    return ""
