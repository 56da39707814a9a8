# SPDX-License-Identifier: GPL-2.0-only
"""Takes from this process all rights but to read an open file and to answer over a pipe.

All data of strangers are read in such a process: the memory of guests by peek/sandbox/, tables by
parquet.py.

Owns the start of such a process, the list of system calls that stay, as a seccomp filter, the
Landlock rules where the kernel has Landlock, and the limits of memory, files and processor time,
which the parent allows for each question. The filter is written here, because twenty lines of BPF
need no library.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from trapless.base.console import TraplessError

# Numbers of x86-64. A call that is in none of these tables ends the process.
ALLOWED = {
    "close": 3,
    "fstat": 5,
    "lseek": 8,
    "munmap": 11,
    "brk": 12,
    "rt_sigprocmask": 14,
    "rt_sigreturn": 15,
    "pread64": 17,
    "sched_yield": 24,
    "mremap": 25,
    "madvise": 28,
    "nanosleep": 35,
    "getpid": 39,
    "exit": 60,
    "gettid": 186,
    "futex": 202,
    "restart_syscall": 219,
    "clock_gettime": 228,
    "clock_nanosleep": 230,
    "exit_group": 231,
    "getrandom": 318,
}
REFUSED = {  # as if they were not permitted: Python asks for files when it explains an error
    "open": 2,
    "stat": 4,
    "lstat": 6,
    "ioctl": 16,
    "access": 21,
    "getcwd": 79,
    "readlink": 89,
    "getdents64": 217,
    "openat": 257,
    "newfstatat": 262,
    "statx": 332,
    "faccessat2": 439,
}
READ, WRITE = (0, 0), (1, 1)  # the call, and the only descriptor that it may name
MAPPINGS = {"mmap": 9, "mprotect": 10}  # not of memory that can be executed

ARCH_X86_64 = 0xC000003E
ARGUMENTS_AT = 16  # in struct seccomp_data; the number is at 0, the architecture at 4
PROT_EXEC = 4
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
KILL, REFUSE, ALLOW = 0x80000000, 0x00050001, 0x7FFF0000

PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38
SECCOMP, SECCOMP_FILTER = 317, (1, 1)
"""The call, and its first arguments: to set a filter, for all threads."""
LANDLOCK_CREATE, LANDLOCK_RESTRICT = 444, 446
LANDLOCK_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
LANDLOCK_NET, LANDLOCK_SCOPES = (4, 0b11), (6, 0b11)
"""By the version of the interface: rights on files, of TCP, and on sockets and signals."""

PACKAGE = Path(__file__).resolve().parents[2]
PROGRAM = (
    "import importlib, sys; sys.path[:0] = filter(None, sys.argv[2:4]); "
    "importlib.import_module(sys.argv[1]).main(*sys.argv[4:])"
)
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Libraries must start no threads, and take memory that the limit counts."""


def start(
    module: str,
    *arguments: str,
    packages: str = "",
    descriptors: Collection[int] = (),
    stdin: int = subprocess.PIPE,
    stdout: int = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """In the parent: a process that calls main() of a module, which must enter the jail.

    `packages` is a folder with other packages that it imports. It keeps these descriptors. Ctrl-C
    is for the parent, which may still have questions.
    """
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", PROGRAM, module, str(PACKAGE), packages, *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        pass_fds=descriptors,
        start_new_session=True,
        cwd="/",
        env=ENVIRONMENT,
    )


def enter(memory_bytes: int) -> None:
    """Give everything up; the process keeps that much address space. TraplessError where this
    machine cannot confine a process in this way."""
    if platform.machine() != "x86_64":
        raise TraplessError(
            f"foreign data cannot be read safely on {platform.machine()}: the sandbox knows the "
            "system calls of x86-64 only"
        )
    libc = ctypes.CDLL(None, use_errno=True)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
        resource.setrlimit(kind, (0, 0))
    _prctl(libc, "PR_SET_DUMPABLE", PR_SET_DUMPABLE, 0)
    _prctl(libc, "PR_SET_NO_NEW_PRIVS", PR_SET_NO_NEW_PRIVS, 1)
    _landlock(libc)
    code = b"".join(program())
    data = ctypes.create_string_buffer(code, len(code))
    filter_ = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(data))
    if libc.syscall(SECCOMP, *map(ctypes.c_ulong, SECCOMP_FILTER), ctypes.c_char_p(filter_)):
        raise _refused("seccomp")  # all threads have the filter, or none


def allow(pid: int, seconds: float) -> None:
    """In the parent: let a process use that much more processor time; then the kernel ends it.

    If it has ended already, its answer will be missing.
    """
    try:
        used = time.clock_gettime(~pid << 3 | 2)  # as clock_getcpuclockid() does
        _, hard = resource.prlimit(pid, resource.RLIMIT_CPU)
        soft = math.ceil(used + seconds)
        soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
        resource.prlimit(pid, resource.RLIMIT_CPU, (soft, hard))
    except OSError:
        return


def _prctl(libc: ctypes.CDLL, name: str, option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    if libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero):
        raise _refused(name)


def _refused(name: str) -> TraplessError:
    error = os.strerror(ctypes.get_errno())
    return TraplessError(
        f"foreign data cannot be read safely here: this kernel refuses {name} ({error})"
    )


def _landlock(libc: ctypes.CDLL) -> None:
    """No file, no port, no other process: the filter forbids them too, where Landlock is absent."""
    version = libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return
    files = LANDLOCK_FILES[max(one for one in LANDLOCK_FILES if one <= version)]
    rules = struct.pack("<Q", files)
    for since, rights in (LANDLOCK_NET, LANDLOCK_SCOPES):
        if version >= since:
            rules += struct.pack("<Q", rights)
    ruleset = libc.syscall(LANDLOCK_CREATE, rules, ctypes.c_size_t(len(rules)), 0)
    if ruleset >= 0:
        libc.syscall(LANDLOCK_RESTRICT, ruleset, 0)
        os.close(ruleset)


def program() -> Iterator[bytes]:
    """The filter, instruction by instruction."""
    yield _step(LOAD, 4)
    yield _step(EQUAL, ARCH_X86_64, 1, 0)
    yield _step(RETURN, KILL)
    yield _step(LOAD, 0)
    for numbers, verdict in ((ALLOWED, ALLOW), (REFUSED, REFUSE)):
        for number in numbers.values():
            yield _step(EQUAL, number, 0, 1)
            yield _step(RETURN, verdict)
    for number, descriptor in (READ, WRITE):
        yield _step(EQUAL, number, 0, 4)
        yield _step(LOAD, ARGUMENTS_AT)
        yield _step(EQUAL, descriptor, 0, 1)
        yield _step(RETURN, ALLOW)
        yield _step(RETURN, KILL)
    for number in MAPPINGS.values():
        yield _step(EQUAL, number, 0, 4)
        yield _step(LOAD, ARGUMENTS_AT + 2 * 8)
        yield _step(ANY_BIT, PROT_EXEC, 0, 1)
        yield _step(RETURN, KILL)
        yield _step(RETURN, ALLOW)
    yield _step(RETURN, KILL)


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("<HBBI", code, then, otherwise, value)
