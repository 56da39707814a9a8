# SPDX-License-Identifier: GPL-2.0-only
"""Tells who is at the other end of a TCP connection: a user of this host, or an address.

Owns the question to the kernel (sock_diag, as ss asks it) for the owner of a socket. All users of
this host have one address, so only their numbers tell them apart. A user may have thousands of
numbers: those of /etc/subuid are their owner's, and all others without an account are one peer.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from contextlib import suppress

from trapless.peek.serve import users

NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, ALL_STATES = 4, 20, 1, 0xFFFFFFFF
NO_COOKIE = 0xFFFFFFFF
HEADER = struct.Struct("=IHHII")  # nlmsghdr
QUESTION = struct.Struct("=BBBxI 2s2s16s16sIII")  # inet_diag_req_v2
OWNER = struct.Struct("=II")  # the user and the inode, in inet_diag_msg
PORTS_AT, OWNER_AT = HEADER.size + 4, HEADER.size + 64
ANSWER_BYTES, WAIT_S = 4096, 1.0
NO_ACCOUNT = "users without an account"
NETWORK_BITS = 64
"""Of an IPv6 address: one client may have all addresses of such a network."""


def peer_of(connection: socket.socket) -> str:
    """A name for who is at the other end, the same for all of their connections."""
    theirs, ours = connection.getpeername(), connection.getsockname()
    ends = tuple((plain(address), port) for address, port, *_ in (theirs, ours))
    with suppress(OSError, struct.error):  # of another host, or nobody may ask here
        uid, inode = _owner(*ends)
        return _user(uid) if inode else "nobody"  # it has been closed, and has root's number
    address = ends[0][0]
    if address.version == 6:
        return str(ipaddress.ip_network((address, NETWORK_BITS), strict=False))
    return str(address)


def is_trusted(peer: str) -> bool:
    """Whether a peer is root on this host, or the user of this process."""
    return peer in (_user(0), _user(os.geteuid()))


def _user(uid: int) -> str:
    uid = users.owner(uid)
    return f"uid {uid}" if users.is_trusted(uid) or users.name(uid) else NO_ACCOUNT


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def plain(text: str) -> Address:
    """An address without its zone, and of IPv4 where it only stands for one."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _owner(end: tuple[Address, int], other: tuple[Address, int]) -> tuple[int, int]:
    """User and inode of the socket that is this end of a connection; OSError where none here is."""
    family = socket.AF_INET if end[0].version == 4 else socket.AF_INET6
    ports = b"".join(port.to_bytes(2, "big") for _, port in (end, other))
    question = QUESTION.pack(
        family,
        socket.IPPROTO_TCP,
        0,
        ALL_STATES,
        ports[:2],
        ports[2:],
        *(address.packed for address, _ in (end, other)),
        0,
        NO_COOKIE,
        NO_COOKIE,
    )
    length = HEADER.size + len(question)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(WAIT_S)
        kernel.sendto(
            HEADER.pack(length, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0) + question, (0, 0)
        )
        answer = kernel.recv(ANSWER_BYTES)
    # Where there is no such socket, the kernel tells of one that listens at this port on any
    # address: whose that is says nothing of a connection from another host.
    is_it = answer[PORTS_AT : PORTS_AT + len(ports)] == ports
    if HEADER.unpack_from(answer)[1] != SOCK_DIAG_BY_FAMILY or not is_it:
        raise OSError("no such socket")
    uid, inode = OWNER.unpack_from(answer, OWNER_AT)
    return uid, inode
