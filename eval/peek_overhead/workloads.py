# SPDX-License-Identifier: GPL-2.0-only
"""Describes the loads of peek-overhead, which its guest repeats in one boot.

This file owns their sizes and the guest's script; what the loads are is
eval/tools/loads/loads.py's, how runs are ordered and taken is overhead.c's.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.peek_overhead import toolchain
from eval.tools.loads import loads
from eval.tools.modes import modes
from trapless.base import built_programs
from trapless.vm.lab import LabConfig

LOADS = ("qsort", "make", "httpd")
"""In the paper's order."""

STEPS = {
    "calls": "a system call that does next to nothing",
    "faults": "a page fault that gives a fresh page",
    "switches": "a byte through a pipe to another process, and back",
}
LIMIT_S = 4 * 3600
CONNECTIONS = 5
SERVERS = 10
"""Processes of the server: of the spare ones it starts some below 5 and ends some above 10, one in
a second, at the cost of tens of requests. With so many, neither is ever due."""
MANY = ("lapi.o", "lctype.o", "lmem.o", "lzio.o")
FEW = ("lctype.o",)
LOOPBACK_UP = "busybox ip link set lo up"


@dataclass(frozen=True)
class Sizes:
    """How much work one run is. `steps`: how many of each loop; empty for none."""

    sort_bytes: int
    objects: tuple[str, ...]
    requests: int
    steps: Mapping[str, int]


def program(name: str) -> Path:
    """A program of this experiment, as make builds it."""
    return built_programs.find(f"eval/peek_overhead/{name}")


def ask(requests: int) -> str:
    """The client of the web server, in the same guest: it ends after so many replies."""
    return (
        f"exec /tmp/ask --port {loads.PORT} --path /{loads.FILE_NAME} "
        f"--expect /tmp/{loads.FILE_NAME} --connections {CONNECTIONS} --requests {requests}"
    )


def script(sizes: Sizes, options: Sequence[str]) -> list[str]:
    """Prepare, start the server, run all loads by peek-overhead with `options`."""
    sort, make, serve = loads.sort(sizes.sort_bytes), loads.make(sizes.objects), loads.serve()
    commands = {name: f"exec /tmp/peek-calls {name} {n}" for name, n in sizes.steps.items()}
    commands |= {
        sort.name: sort.command,
        make.name: f"exec chroot {toolchain.ROOT} /bin/sh -c {shlex.quote(make.command)}",
        serve.name: ask(sizes.requests),
    }
    served = f"{serve.command} -c 'StartServers {SERVERS}'"
    words = [word for pair in commands.items() for word in pair]
    run = shlex.join(["/tmp/peek-overhead", *options, "--limit", str(LIMIT_S), "--", *words])
    return [
        "set -e",
        *(load.prepare for load in (sort, make, serve) if load.prepare),
        toolchain.PREPARE,
        LOOPBACK_UP,
        # It ends by a signal to its process group, which is to be its own.
        f"busybox setsid /bin/sh -c {shlex.quote(served)} & server=$!",
        f"({ask(1)}) > /dev/null",  # which waits until it serves
        f"{run} || exit 1",
        "kill $server; wait $server || true",
        "echo '{\"complete\": true}'",
    ]


def guest(kernel: str, root: Path, folder: Path, timeout_s: float, *, icount: bool) -> LabConfig:
    """The guest of all loads; what is made for it is written into `made`.

    `root`: the programs', which the guest reaches on the host's disk.
    """
    archive = toolchain.pack(root, folder), f"{modes.BROUGHT}/{toolchain.ARCHIVE}"
    own = tuple(
        (program(name), f"{modes.BROUGHT}/{name}") for name in ("peek-overhead", "peek-calls")
    )
    return modes.guest_config(
        LabConfig(
            kernel=kernel,
            cpus=1,
            icount=icount,
            files=(*own, archive, *loads.guest_files(folder)),
            timeout_s=timeout_s,
        )
    )
