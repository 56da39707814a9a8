# SPDX-License-Identifier: GPL-2.0-only
"""Experiment servers: what crossings cost servers of today, and what would take that away.

This file owns the question, the method and the limits, in words, and the sizes and rounds. Each
part_*.py owns what is run, the metrics, the claims and the figures.
"""

from __future__ import annotations

from trapless.experiments.collection import Extent
from trapless.experiments.experiment import OwnKernel, Spec, part
from trapless.experiments.fit import SAMPLES_MIN

HTTP_LOADS = Extent(
    ("keep1", "keep8", "keep64", "close1", "close8", "close64", "keep8-4k"),
    ("keep8", "close8"),
    ("keep8",),
)
"""The loads of the web server and its twins: how many connections, kept or closed."""
HTTP_TURNS, HTTP_ROUNDS = Extent(6, 3), Extent(15, 5, SAMPLES_MIN)
HTTP_SHARE = Extent(1, 4, 200)
"""A shorter run on a machine's own kernel makes so many times fewer requests."""
PAIRS = Extent(6, 3)
"""Runs of an unmodified server in each mode."""

TIMED = OwnKernel(
    method=(
        "The web server of examples/http, on libtrapless, and its twins on epoll and io_uring, the "
        "one on epoll also in supervisor mode, serve the same loads by turns on this machine's own "
        "kernel. The bytes of every reply are compared. Measured: the time that the kernel gave to "
        "the server's process, and the time of the whole load by the time-stamp counter."
    ),
    limits=(
        "The published gains are of Apache, nginx, redis and others: those servers are not run "
        "here, and the verdicts on them stay open.",
        "The servers have CPU 0 and the load has CPU 1; the network is the loopback device. "
        "Whether both are threads of one core decides what they share.",
        "io_uring leaves the end of a connection to the kernel's threads, whose time is not the "
        "server's.",
    ),
    parts=(part("servers", "http"),),
    minutes=(0.3, 3),
)

SPEC = Spec(
    name="servers",
    paper="running-mode-switch",
    question="The papers name servers as their future work: how much of a request do crossings "
    "into the kernel cost servers of today, and what do supervisor mode and batches take away?",
    method=(
        "Unmodified servers from Debian's packages serve a load of a known amount; the bytes of "
        "every reply are compared. In one boot a server runs by trap and in supervisor mode by "
        "turns, and all that its processes do is counted, the load's work not. What supervisor "
        "mode saves is predicted from the turns by trap and from loops that the same boot "
        "calibrates, and compared with what was counted. A second boot models caches and TLBs of "
        "two desktop processors. So does a run of the web server of examples/http and of its "
        "twin, once more with the kernel's work on another processor. The calls of event loops "
        "are recorded, and replayed as if some of them waited for the next one."
    ),
    limits=(
        "Instructions are counted, and clocks modelled: what a trap costs a pipeline, only a "
        "processor shows. Published gains are times on real machines: the verdict on them is "
        "open.",
        "The guest has one processor. A server's threads and the load take turns on it, and the "
        "network is the loopback device, where the sender executes the receiver's part.",
        "In lockstep a woken process waits until the other one sleeps. Free loads are without "
        "that, and their turns may do different work.",
        "PostgreSQL's and MariaDB's data are in the guest's memory, and one row is asked for: "
        "what disks and large tables add is not in the figures.",
    ),
    parts=(
        part("servers", "unmodified"),
        part("servers", "http"),
        part("servers", "pollution", full_only=True),
        part("servers", "aggregate", full_only=True),
    ),
    minutes=(1, 50),
    quick_by_name=True,
    spread=True,
    own_kernel=TIMED,
)
