# SPDX-License-Identifier: GPL-2.0-only
"""Structures of the binary interface for ctypes: those that the command uses.

`python -m tests.abi.declarations` makes them from the rows of trapless_fields.h.
"""

from __future__ import annotations

import ctypes


class Request(ctypes.Structure):
    """struct tl_request."""

    _fields_ = [
        ("nr", ctypes.c_uint32),
        ("state", ctypes.c_uint8),
        ("condition", ctypes.c_uint8),
        ("target", ctypes.c_uint16),
        ("args", ctypes.c_uint64 * 6),
        ("result", ctypes.c_int64),
    ]


class Info(ctypes.Structure):
    """struct tl_info."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("abi", ctypes.c_uint32),
        ("entries_max", ctypes.c_uint32),
        ("calls_allowed", ctypes.c_uint32),
        ("version", ctypes.c_char * 32),
    ]


class Switch(ctypes.Structure):
    """struct tl_switch."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("pid", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
        ("refusal", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32 * 3),
    ]


class Supervisor(ctypes.Structure):
    """struct tl_supervisor."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("processes", ctypes.c_uint32),
        ("refusals", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 2),
    ]


class Process(ctypes.Structure):
    """struct tl_process."""

    _fields_ = [
        ("pid", ctypes.c_int32),
        ("mode", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("supervisor", ctypes.c_uint32),
        ("resident", ctypes.c_int32),
        ("comm", ctypes.c_char * 16),
        ("calls_direct", ctypes.c_uint64),
        ("calls_worked", ctypes.c_uint64),
        ("calls_left", ctypes.c_uint64),
        ("calls_kernel", ctypes.c_uint64),
        ("switches", ctypes.c_uint64),
        ("demotions", ctypes.c_uint64 * 8),
    ]


class Processes(ctypes.Structure):
    """struct tl_processes."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("entry_size", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("total", ctypes.c_uint32),
        ("entries", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64),
    ]
