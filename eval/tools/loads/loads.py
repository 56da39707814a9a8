# SPDX-License-Identifier: GPL-2.0-only
"""Describes loads for a guest in the programs' root: sorting, building a C project, serving files.

This file owns the input, the preparation and the commands of each, as lines of the guest's shell;
the programs behind them are beside this file and among the packages of
trapless/stock/real_programs.py. What is measured meanwhile, and for how long, belongs to the
experiments.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.tools.modes.modes import BROUGHT
from trapless.base import built_programs
from trapless.stock.real_programs import SOURCE_FOLDER

SORT_BYTES = 40 << 20
"""As many bytes of floating-point numbers as the paper sorts."""

TREE = "/tmp/lua"
COMPILER = "/usr/lib/gcc/x86_64-linux-gnu/12"
FEW = ("lapi.o", "lcode.o", "lctype.o")
"""Some objects of the project, for runs that have no time for all of it."""

SITE = "/tmp/site"
FILE_BYTES = 4096
FILE_NAME = "file"
PORT = 8080
SERVERS_FIRST = 5
SERVERS_MAX = 150
"""Processes of the server: the defaults of the paper's Apache 1.3."""

MODULES = "/usr/lib/apache2/modules"
CONFIGURATION = f"""\
ServerRoot {SITE}
ServerName localhost
Listen {PORT}
LoadModule mpm_prefork_module {MODULES}/mod_mpm_prefork.so
LoadModule authz_core_module {MODULES}/mod_authz_core.so
User nobody
Group nogroup
PidFile {SITE}/pid
ErrorLog {SITE}/errors
DocumentRoot {SITE}/files
StartServers {SERVERS_FIRST}
MinSpareServers 5
MaxSpareServers 10
ServerLimit {SERVERS_MAX}
MaxRequestWorkers {SERVERS_MAX}
MaxConnectionsPerChild 0
KeepAlive Off
"""


@dataclass(frozen=True)
class Load:
    """Work of a known amount. `prepare` once, then `command` as often as wanted.

    The command's output is rows, or nothing; its status is 0 only if the work was done.
    """

    name: str
    prepare: str
    command: str


def sort(bytes_: int = SORT_BYTES) -> Load:
    """Floating-point numbers, by the C library's qsort."""
    return Load("qsort", "", f"exec /tmp/sort {bytes_}")


def make(objects: Sequence[str] = ()) -> Load:
    """Builds Lua, as released, by make; or some objects of it only. Its files are in memory, and
    so is the compiler when it begins: reading it from the host takes a guest seconds.

    A whole build proves itself by a program that the new interpreter runs.
    """
    what = " ".join(objects) if objects else "linux"
    build = f"make -C {TREE}/src -s CC=gcc-12 MYCFLAGS=-std=gnu99 {what} > /tmp/make.log 2>&1"
    proof = "" if objects else f" && test $({TREE}/src/lua -e 'print(6 * 7)') = 42"
    failed = "{ tail -n 5 /tmp/make.log >&2; exit 1; }"
    return Load(
        "make",
        f"cp -r /{SOURCE_FOLDER}/lua5.4 {TREE}; cat {COMPILER}/cc1 {COMPILER}/*.a > /dev/null; "
        "echo 'int main(void) { return 0; }' | gcc-12 -x c -o /tmp/first -",
        f"make -C {TREE}/src -s clean && {build}{proof} || {failed}",
    )


def serve() -> Load:
    """Apache, a process for each request under way, serving one file; it goes on until ended.

    `ask` is its client: on port PORT of the guest, path /file.
    """
    written = f"printf %s {shlex.quote(CONFIGURATION)} > {SITE}/configuration"
    return Load(
        "httpd",
        f"mkdir -p {SITE}/files; cp /tmp/{FILE_NAME} {SITE}/files; {written}",
        f"exec apache2 -D FOREGROUND -f {SITE}/configuration",
    )


def network(address: str) -> str:
    """The line that gives a guest with a network card its address."""
    return (
        "busybox ip link set lo up; busybox ip link set eth0 up; "
        f"busybox ip addr add {address}/24 dev eth0"
    )


def served_file() -> bytes:
    """The content that the server serves: bytes of which no part looks like another."""
    return b"".join(number.to_bytes(2, "big") for number in range(0x4000, 0x4000 + FILE_BYTES // 2))


def program(name: str) -> Path:
    """A program of eval/tools/loads, as make builds it."""
    return built_programs.find(f"eval/tools/loads/{name}")


def guest_files(folder: Path) -> tuple[tuple[Path, str], ...]:
    """The files that a guest needs for all loads; the served file is written into `folder`."""
    file = folder / FILE_NAME
    file.write_bytes(served_file())
    programs = tuple((program(name), f"{BROUGHT}/{name}") for name in ("sort", "ask"))
    return (*programs, (file, f"{BROUGHT}/{FILE_NAME}"))
