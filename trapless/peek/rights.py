# SPDX-License-Identifier: GPL-2.0-only
"""Gives up the rights that opening a machine took, when it is open.

Owns the list of what stays: the right to write a recording where its user wants it. Descriptors
that are open stay usable. So an attacker who fools the reader of a guest's memory gets none of
root's powers over this host's kernel and processes.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection

CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_SETPCAP = 0, 1, 2, 3, 8
CAP_SYS_PTRACE, CAP_SYS_NICE = 19, 23
KEPT = (CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SYS_NICE)
TO_OPEN = (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE)
"""The rights to open other users' machines, and to ask their monitors."""
LAST_CAP = 63
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4
VERSION_3 = 0x20080522


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable"))


def drop(kept: Collection[int] = KEPT) -> None:
    """Drop all capabilities but `kept`, for this thread and all that it starts, for good.

    Another user than root has none to drop.
    """
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(LAST_CAP + 1):
        if capability not in kept:
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    header, data = _Header(VERSION_3, 0), (_Data * 2)()
    if libc.capget(ctypes.byref(header), data) == 0:
        mask = sum(1 << capability for capability in kept)
        for half, word in enumerate((mask & 0xFFFFFFFF, mask >> 32)):
            data[half].effective &= word
            data[half].permitted &= word
            data[half].inheritable &= word
        libc.capset(ctypes.byref(header), data)
