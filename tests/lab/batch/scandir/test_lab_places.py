# SPDX-License-Identifier: GPL-2.0-only
"""Entries of TL_NR_SCANDIR equal plain calls on file systems that are modules or need a mount.

The comparison is scandir_equals_plain_calls.c; this file owns the places: ext4 with an indexed
directory, overlayfs with whiteouts, cgroup2, debugfs, tracefs, devpts, a proc that hides much, and
FUSE that gives one entry at a time. The kernel clears no memory that it gives, so what fills up a
name is seen as it is.
"""

from __future__ import annotations

from tests.lab.runner.suite import BINARY, build_programs
from trapless.base.console import Silent
from trapless.vm import guest_disk, lab

PROGRAM = "scandir_equals_plain_calls"
PLACES = {
    "/data": "", "/data/many": "", "/overlay": "", "/overlay/below": "",
    "/cgroup": "cgroup2", "/debug": "debugfs", "/tracing": "tracefs", "/tracing/events": "",
    "/pts": "devpts", "/hidden": "proc -o hidepid=2",
}  # fmt: skip
"""Each place, and the file system that is mounted there if it is one that the kernel makes up."""

SCRIPT = f"""\
mkdir /data/many && cd /data/many && for i in $(seq 600); do : >file-$i; done
cd / && mkdir -p /lower/below /upper/files /upper/work /overlay && touch /lower/a /lower/below/x
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work none /overlay &&
echo new >/overlay/new && rm /overlay/a && mkdir /overlay/below/y || exit 1
{
    "".join(
        f"mkdir {place} && mount -t {kind} none {place} || exit 1{chr(10)}"
        for place, kind in PLACES.items()
        if kind
    )
}\
TL_PLACES={":".join(PLACES)} exec /labtests {PROGRAM}
"""


def test_entries_equal_plain_calls_on_each_file_system(kernel: str) -> None:
    build_programs(Silent())
    modules = (*guest_disk.modules(kernel, Silent()), ("overlay", ""), ("fuse", ""))
    config = lab.LabConfig(
        kernel=kernel,
        modules=modules,
        files=((BINARY, "/labtests"),),
        timeout_s=600,
        append="init_on_alloc=0",
    )
    argv = guest_disk.command(["/bin/sh", "-c", SCRIPT])
    result = lab.run(config, argv)
    assert (result.status, result.stderr) == (0, b"")
    compared = dict(line.split(": ") for line in result.stdout.decode().splitlines())
    assert {place for place in PLACES if int(compared[place].split()[0]) > 2} == set(PLACES)
    assert "/fuse" in compared
    assert not lab.splats(result.kernel_log)
