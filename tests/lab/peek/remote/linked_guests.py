# SPDX-License-Identifier: GPL-2.0-only
"""Runs two guests that are linked by network cards, with RDMA over them (Soft-RoCE).

Owns the link and the addresses. One guest is the target, on which trapless_rdma.ko is loaded, and
whose memory is a file of this machine as well, by which the tests know what is true. The other one
is the observer, and has this machine's files.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.peek.watched_guest import Guest, guest
from trapless.base.console import Silent
from trapless.stock import kbuild, kernels

TARGET, OBSERVER = "10.9.0.1", "10.9.0.2"
KEY = bytes(range(32)).hex()
MODULE = "/root/trapless_rdma.ko"
PARAMETERS = f"address={TARGET} allow={OBSERVER} allow_virtual_dma=1"
LOAD = f"insmod {MODULE} {PARAMETERS} && echo {KEY} >/sys/module/trapless_rdma/parameters/key"
ADD = "rdma link add rxe0 type rxe netdev eth0"
BUSY = "rcupdate.rcu_cpu_stall_timeout=120 sysctl.kernel.hung_task_timeout_secs=300"
BUSY += " watchdog_thresh=60"
"""On a busy machine a guest waits for a processor longer than its kernel's usual limits."""
NEEDED = ("/usr/bin/rdma", "/usr/lib/x86_64-linux-gnu/libibverbs", "/usr/include/rdma/rdma_cma.h")

CARD = """\
PATH=/usr/sbin:/usr/bin:/sbin:/bin
ip link set lo up; ip link set eth0 mtu 4400 up; ip addr add {address}/24 dev eth0
{add} && echo ready
"""


def missing() -> str:
    """What this machine lacks of rdma-core and iproute2; empty where all is there."""
    return ", ".join(
        name for name in NEEDED if not Path(name).exists() and not shutil.which(Path(name).name)
    )


@contextmanager
def linked_guest(
    folder: Path,
    kernel: str,
    address: str,
    ends: tuple[Path, Path],
    *files: tuple[Path, str],
) -> Iterator[Guest]:
    """One of the guests, with its device for RDMA."""
    folder.mkdir(exist_ok=True)
    options = {"kernel": kernel, "host_root": True, "link": ends, "memory": "1G"}
    options["modules"], options["append"] = (("rdma_rxe", ""),), f"movablecore=512M {BUSY}"
    with guest(folder, *files, **options) as running:
        join(running, address)
        yield running


def join(guest: Guest, address: str) -> None:
    """Give it its address and its device for RDMA."""
    said = guest.say(CARD.format(address=address, add=ADD))
    assert "ready" in said, said


def serve(guest: Guest) -> None:
    """Load the module, whose device is there."""
    said = guest.say(f"{LOAD} && echo loaded")
    assert "loaded" in said, said


@contextmanager
def target(folder: Path, kernel: str) -> Iterator[Guest]:
    """The target, which can be started again while the observer runs."""
    ends = (folder / "target.link", folder / "observer.link")
    found = kernels.resolve(kernel, Silent())
    module = kbuild.module_for(found, Silent(), name=kbuild.RDMA_MODULE)
    with linked_guest(folder / "target", kernel, TARGET, ends, (module, MODULE)) as running:
        serve(running)
        yield running


@contextmanager
def observer(folder: Path, kernel: str, program: Path) -> Iterator[Guest]:
    """The observer, with the program of the attacks."""
    ends = (folder / "observer.link", folder / "target.link")
    files = ((program, "/root/hostile_observer"),)
    with linked_guest(folder / "observer", kernel, OBSERVER, ends, *files) as running:
        running.say(f"umask 077; echo {KEY} >/root/key")
        yield running
