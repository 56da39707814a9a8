# SPDX-License-Identifier: GPL-2.0-only
"""Hands real programs to a guest that runs them in user and supervisor mode by turns, and reads its
rows.

The program beside this file makes the runs in the guest, inside the root of
trapless/stock/real_programs.py. Which programs, and what their figures mean, is an experiment's
business.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trapless.experiments.collection import Row
from trapless.stock.real_programs import Programs
from trapless.supervisor.control import Calls
from trapless.vm.lab import LabConfig

BROUGHT = "/brought"
"""Files put there are in /tmp of the programs' root."""

GUEST_PROGRAM = f"{BROUGHT}/modes"
ENVIRONMENT = ("PATH=/usr/sbin:/usr/bin:/sbin:/bin:/tmp", "HOME=/tmp", "LC_ALL=C.UTF-8")
MEMORY = "2G"

ENTER = """\
set -e
root=$1; shift
for path in dev proc sys; do mount --rbind /$path "$root/$path"; done
for path in tmp run; do mount -t tmpfs none "$root/$path"; done
cp -r {brought}/. "$root/tmp"
printf 'root:x:0:0::/tmp:/bin/sh\\nnobody:x:65534:65534::/:/bin/false\\n' > "$root/etc/passwd"
printf 'root:x:0:\\nnogroup:x:65534:\\n' > "$root/etc/group"
exec env -i {environment} chroot "$root" /bin/sh -c "$1"
"""


@dataclass(frozen=True)
class Program:
    """A program that ends, or with `port` and `load` a server.

    A load is a command of the shell that works the server; its last line is "requests N", all
    lines before are the same in every run. `prepare` is done once, before the first run.
    """

    name: str
    what: str  # for people: what it does and what is special about it
    argv: tuple[str, ...]
    input: str = "/dev/null"
    prepare: str = ""
    port: int = 0
    load: str = ""


@dataclass
class Runs:
    """The results of one program's runs: costs per operation and calls, one for each repeat."""

    trap: list[float] = field(default_factory=list)
    supervisor: list[float] = field(default_factory=list)
    calls: list[Calls] = field(default_factory=list)
    operations: list[int] = field(default_factory=list)
    demotions: list[dict[str, int]] = field(default_factory=list)

    @property
    def shares(self) -> list[float]:
        """The share of all calls that returned in supervisor mode, a repeat."""
        return [calls.share or 0.0 for calls in self.calls]


def shell_line(program: Program, repeats: int, kind: str, limit_s: int) -> str:
    """The line of the guest's shell that runs one program.

    >>> shell_line(Program("ls", "", ("ls", "a b")), 2, "counted", 60)
    "/tmp/modes --call ls --kind counted --repeats 2 --limit 60 --input /dev/null -- ls 'a b'"
    """
    options = {
        "call": program.name,
        "kind": kind,
        "repeats": str(repeats),
        "limit": str(limit_s),
        "input": program.input,
    }
    if program.port:
        options |= {"port": str(program.port), "load": program.load}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    return shlex.join(["/tmp/modes", *words, "--", *program.argv])


def guest_argv(root: Programs, script: Sequence[str]) -> list[str]:
    """The guest's command that runs the lines of `script` inside the root of programs."""
    enter = ENTER.format(brought=BROUGHT, environment=shlex.join(ENVIRONMENT))
    return ["/bin/sh", "-c", enter, "trapless", str(root.root), "\n".join(script)]


def guest_config(config: LabConfig) -> LabConfig:
    """`config` for a guest that tries programs: the root is in the host's cache."""
    return LabConfig(**{**vars(config), "host_root": True, "memory": MEMORY})


def runs_of(rows: Iterable[Row], unit: str = "instructions") -> dict[str, Runs]:
    """The results of each program, from the rows of a boot."""
    programs: dict[str, Runs] = {}
    for row in rows:
        if "calls_direct" in row:
            of = programs.setdefault(row["call"], Runs())
            of.calls.append(Calls(*(row[f"calls_{way}"] for way in WAYS)))
            of.demotions.append(
                {key: value for key, value in row.items() if key.startswith("demoted_")}
            )
        elif row.get("unit") == unit and "mechanism" in row:
            of = programs.setdefault(row["call"], Runs())
            values = of.supervisor if row["mechanism"] == "supervisor" else of.trap
            values.append(row["value"] / row["ops"])
            if row["mechanism"] == "supervisor":
                of.operations.append(row["ops"])
    return programs


WAYS = ("direct", "worked", "left", "kernel")
