# SPDX-License-Identifier: GPL-2.0-only
"""Compound calls, and whether this kernel and module offer them: `trapless doctor --calls`.

Compound calls are requests that Linux has no system call for. This file owns their names and the
reasons; calls.py owns the table of system calls, and shows both.
"""

from __future__ import annotations

from trapless.calls import CompoundCall
from trapless.doctor.capabilities import Host
from trapless.module import MODULE

CALLS = ((0xFFC, "scandir"),)
"""Numbers as in trapless_compound.h. A parameter of the module has the name of each call."""

PLAIN = "libtrapless makes plain calls instead"


def examine(host: Host) -> list[CompoundCall]:
    """What the module says of each of them."""
    rows = []
    for nr, name in CALLS:
        reason = _reason(host, name)
        rows.append(CompoundCall(nr, name, not reason, f"{reason}; {PLAIN}" if reason else ""))
    return rows


def _reason(host: Host, name: str) -> str:
    """Why the call is off, or nothing."""
    if not host.exists(f"sys/module/{MODULE}"):
        return "the module is not loaded: trapless module load"
    if not host.exists(f"sys/module/{MODULE}/parameters/{name}"):
        return "the module is older than this command: unload it, load this one's"
    if host.text(f"sys/module/{MODULE}/parameters/{name}") == "Y":
        return ""
    return f"the module was loaded with {name}=0, or the kernel's log says what this kernel lacks"
