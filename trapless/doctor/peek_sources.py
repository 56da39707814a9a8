# SPDX-License-Identifier: GPL-2.0-only
"""What `trapless peek` can look into on this machine, and what its commands lack here.

The answers are those of peek itself: machines.py finds virtual machines, kcore.py knows what the
running kernel allows. This file owns which of them are asked; nothing is read of any memory.
"""

from __future__ import annotations

import errno
import os
from importlib.util import find_spec

from trapless.base.console import TraplessError
from trapless.base.missing import remedy
from trapless.base.paths import build_dir, repo_root
from trapless.doctor.capabilities import Capability, Host
from trapless.peek import errors, machines
from trapless.peek.kernel.memories.kcore import HERE, KCORE, LOCKDOWN, NOTE, Access

TITLE = "Peek: what can be looked into"
SYMBOLS = ("init_task", "__start_BTF")
"""Of the data that peek begins with: a kernel without them shows nothing."""
SHOWN_MAX = 3


def examine(host: Host) -> tuple[Capability, ...]:
    """Every answer, the machines first."""
    return guests(host), own_kernel(host), programs()


def guests(host: Host) -> Capability:
    """The virtual machines that this user may look into."""
    found = machines.running(host.root / "proc")
    readable = [one for one in found if one.is_readable]
    title = "virtual machines of this host"
    if not readable:
        row = errors.NO_MACHINE_OF_USER if found else errors.NO_MACHINE
        return Capability("guests", title, False, row.reason, row.remedy)
    names = ", ".join(map(str, readable[:SHOWN_MAX]))
    more = f" and {len(readable) - SHOWN_MAX} more" if len(readable) > SHOWN_MAX else ""
    shared = sum(one.shared is not None for one in readable)
    return Capability(
        "guests",
        title,
        True,
        f"{len(readable)} of {len(found)}: {names}{more}; {shared} with RAM in a file",
        "the others are of other users: look as root" if len(readable) < len(found) else "",
    )


def own_kernel(host: Host) -> Capability:
    """Whether this machine's own kernel shows its memory (`--local`)."""
    title = "this machine's own kernel (--local)"
    note, lockdown = (host.text(str(path).lstrip("/")) for path in (NOTE, LOCKDOWN))
    access = Access(HERE, _error_of(host), host.uid, lockdown, note)
    try:
        access.check()
        access.note_address()
    except TraplessError as error:
        reason, _, helps = str(error).partition("; ")
        return Capability(
            "own-kernel", title, False, reason, helps or errors.NO_SYMBOLS_OF_DATA.remedy
        )
    if absent := host.absent_symbols(SYMBOLS):
        row, names = errors.NO_SYMBOLS_OF_DATA, ", ".join(absent)
        return Capability("own-kernel", title, False, f"it does not list {names}", row.remedy)
    return Capability("own-kernel", title, True, f"{KCORE} can be read")


def programs() -> Capability:
    """What `top`, `record`, `serve` and `shell` take beside the rest."""
    lacks: dict[str, str] = {}
    for name, of_whom in (("pyarrow", "top, record, serve"), ("drgn", "shell")):
        if find_spec(name) is None:
            lacks[f"{name} ({of_whom})"] = remedy(name)
    in_checkout = build_dir().is_relative_to(repo_root())  # else it is built when it is needed
    if in_checkout and not (build_dir() / "sampler/trapless-sampler").exists():
        lacks["the sampler (top, record, serve)"] = "`make workloads` builds it"
    return Capability(
        "peek-programs",
        "programs of top, record, serve and shell",
        not lacks,
        f"lacks {', '.join(lacks)}" if lacks else "all are there",
        "; ".join(dict.fromkeys(lacks.values())),
    )


def _error_of(host: Host) -> int:
    """The error of opening the file that a kernel shows its memory in; 0 where it opens."""
    try:
        os.close(os.open(host.root / str(KCORE).lstrip("/"), os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno or errno.EIO
    return 0
