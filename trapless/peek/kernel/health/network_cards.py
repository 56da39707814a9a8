# SPDX-License-Identifier: GPL-2.0-only
"""Finds network cards whose queues of packets to send have stood still for long.

Owns the kernel's list of network devices. The host, or the hardware, has to take packets from a
full queue; devices that only software implements are left out, since theirs may stand still.
"""

from __future__ import annotations

from collections.abc import Iterator

from trapless.peek import limits
from trapless.peek.kernel.health.hang_causes import Cause, Verdict
from trapless.peek.kernel.health.kernel_structures import Structures
from trapless.peek.kernel.health.thread_states import Clocks

UP, WITHOUT_CARRIER = 1 << 0, 1 << 2
"""Bits of a device's state (__LINK_STATE_START, __LINK_STATE_NOCARRIER)."""
FULL = 3
"""Bits of a queue's state that keep packets back (QUEUE_STATE_ANY_XOFF)."""


def stalled(structures: Structures, clocks: Clocks, longer_s: float) -> list[Verdict]:
    """The verdicts on network cards with a queue that has been full for longer than that."""
    found = []
    for device in _cards(structures):
        seconds = max(_full_s(structures, clocks, device), default=0.0)
        if seconds > longer_s:
            name = structures.text(device, "net_device", "name")
            text = (
                f"The network card {name} has sent nothing for {seconds:.0f} s though packets "
                "wait: its driver, or the host that provides it, is stuck."
            )
            found.append(Verdict(Cause.NETWORK, text, seconds, f"card {name}"))
    return found


def _cards(structures: Structures) -> Iterator[int]:
    """The network devices of the first name space that are up, connected, and of a bus."""
    head = structures.target.symbol("init_net") + structures.at("net", "dev_base_head")
    link = structures.at("net_device", "dev_list")
    for place in structures.links(head):
        device = place - link
        state = structures.number(device, "net_device", "state")
        is_up = state & UP and not state & WITHOUT_CARRIER
        if is_up and structures.number(device, "net_device", "dev.parent"):
            yield device


def _full_s(structures: Structures, clocks: Clocks, device: int) -> Iterator[float]:
    """For how long each full queue of a device has taken no packet, in seconds."""
    number, size = structures.number, structures.target.sizeof("netdev_queue")
    first = number(device, "net_device", "_tx")
    count = min(number(device, "net_device", "num_tx_queues"), limits.CPUS_MAX)
    for queue in range(first, first + size * count, size):
        if number(queue, "netdev_queue", "state") & FULL:
            since = number(queue, "netdev_queue", "trans_start")
            yield clocks.ticks_s(since & 0xFFFF_FFFF)
