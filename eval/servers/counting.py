# SPDX-License-Identifier: GPL-2.0-only
"""Counts servers in the lab: what a guest is given, and which runs it makes.

In one boot a server runs in user mode and in supervisor mode by turns, and loops are calibrated
there, so that what was predicted and what was saved come from the same kernel. A second boot of a
server's first load has the model's caches. This file owns the runs; what their counts mean is
findings.py's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from eval.servers import shapes, spec
from eval.servers.shapes import OUTPUT, Shape
from eval.servers.unmodified.server_description import Server
from eval.servers.unmodified.web_servers import SITE
from trapless.experiments.experiment import program
from trapless.experiments.stat_runs import Run
from trapless.stat import guest
from trapless.stat.guest import Job
from trapless.stat.labels import TURNS_MAX
from trapless.stock import program_archive
from trapless.stock.real_programs import Programs
from trapless.vm.lab import LabConfig

PROCESSORS = ("core-i7-9700k", "ryzen-5-3600")
MANY_PAIRS = TURNS_MAX // 2
"""The same under a server's uneven loads: as many as a guest takes."""
WARM = 2
"""Loads that are not counted. In the first one after its start a server makes other calls."""
ARCHIVE = "/server.tar"
MEMORY = "1G"
TIMEOUT_S = 2 * 3600.0
PUT_OFF = "rcutree.use_softirq=0"
"""A thread of the kernel does the work that it puts off (freeing closed files and sockets), so that
this does not fall into whichever program is interrupted next."""

ENTER = f"""\
set -e; cd /; tar -x -f {ARCHIVE}; rm {ARCHIVE}; ip link set lo up
mkdir -p {SITE}; for file in /site/*; do mv $file {SITE}; done
"""
AFTER = f"sort -u {OUTPUT}"
"""The proof of all runs of a guest: each has had the same number of right replies."""


def runs(
    kernel: str, root: Programs, folder: Path, servers: Sequence[Server], *, quick: bool
) -> Iterator[Run]:
    """The runs of all servers; what the guests are given is written into `folder`."""
    for server in servers:
        packed = pack(root.root, server, folder)
        for place, shape in enumerate(server.shapes(quick=quick)):
            config = _config(kernel, packed, server, shape, folder)
            job = _job(server, shape)
            pairs = MANY_PAIRS if shape.name in server.uneven else spec.PAIRS.full
            turns = guest.by_turns(spec.PAIRS.quick if quick else pairs)
            label = f"{server.name}-{shape.name}"
            by_turns = Job(**{**vars(job), "turns": turns})
            yield Run(label, config, by_turns, (), AFTER)
            if server.modelled and not place and not quick:
                yield Run(f"{label}-modelled", config, job, PROCESSORS, AFTER)


def pack(root: Path, server: Server, folder: Path) -> Path:
    """The server with its libraries and the files that it works on."""
    folders = (
        str(path.relative_to(root))
        for tree in server.trees
        for path in (root / tree, *sorted((root / tree).rglob("*")))
        if path.is_dir()
    )
    return program_archive.pack(root, folder / f"{server.name}.tar", server.programs, folders)


def _job(server: Server, shape: Shape) -> Job:
    talk = server.talk(shape.bytes_)
    return Job(
        server.argv,
        prepare=f"{ENTER}{server.prepare}",
        load=shapes.load(talk, shape),
        ready=shapes.ready(talk, shape),
        ready_limit_s=server.ready_limit_s,
        warm=WARM,
    )


def files(packed: Path, server: Server, shape: Shape, folder: Path) -> tuple[tuple[Path, str], ...]:
    """The files for a guest: the server, the load with its words, and the pages."""
    given = [(packed, ARCHIVE), (program("servers/load/load"), shapes.LOAD)]
    for bytes_ in (shapes.SMALL, shapes.LARGE):
        page = _written(folder, f"site-{bytes_}", shapes.content(bytes_))
        given.append((page, f"/site/{bytes_}"))
    for name, data in server.talk(shape.bytes_).files.items():
        written = _written(folder, f"{server.name}-{shape.name}-{name}", data)
        given.append((written, f"{shapes.WORDS}/{name}"))
    return tuple(given)


def _config(kernel: str, packed: Path, server: Server, shape: Shape, folder: Path) -> LabConfig:
    given = files(packed, server, shape, folder)
    return LabConfig(kernel=kernel, memory=MEMORY, files=given, append=PUT_OFF, timeout_s=TIMEOUT_S)


def _written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path
