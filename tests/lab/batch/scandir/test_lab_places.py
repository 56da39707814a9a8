# SPDX-License-Identifier: GPL-2.0-only
"""Entries of TL_NR_SCANDIR equal plain calls on file systems that are modules or need a mount.

The comparison is scandir_equals_plain_calls.c; this file owns the places: ext4 with an index of
names and with a folder whose names are case-insensitive, VFAT, NFS from a server in the same guest,
overlayfs with whiteouts, cgroup2, debugfs, tracefs, devpts, a proc that hides much, and FUSE that
gives one entry at a time. Some are compared through an idmapped mount as well. The kernel clears no
memory that it gives, so what fills up a name is seen as it is.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.lab.runner.suite import BINARY, build_programs
from trapless.base import tools
from trapless.base.console import Silent
from trapless.vm import guest_disk, lab

PROGRAM = "scandir_equals_plain_calls"
PLACES = {
    "/data": "", "/disk/many": "", "/disk/folded": "", "/fat": "", "/nfs": "", "/nfs/many": "",
    "/overlay": "", "/overlay/below": "", "/cgroup": "cgroup2", "/debug": "debugfs",
    "/tracing": "tracefs", "/tracing/events": "", "/pts": "devpts", "/hidden": "proc -o hidepid=2",
}  # fmt: skip
"""Each place, and the file system that is mounted there if it is one that the kernel makes up."""
IDMAPPED = ("/disk/many", "/disk/folded", "/overlay", "/filled")
"""tmpfs (/filled) allows it since 6.3; its mount is left out on older kernels."""

UNTIL = 2**31 - 1
NFS = f"""\
ifconfig lo up && mkdir -p /server /nfs && mount -t nfsd nfsd /server || exit 1
echo "-2 -3" >/server/versions && echo "tcp 2049" >/server/portlist || exit 1
answer() {{ echo "$2" >/proc/net/rpc/$1/channel || exit 1; }}
answer auth.unix.ip "nfsd 127.0.0.1 {UNTIL} everybody"
answer nfsd.export "everybody /disk {UNTIL} {0x2402} 65534 65534 0"
answer nfsd.fh "everybody 1 \\x00000000 {UNTIL} /disk"
echo 2 >/server/threads || exit 1
mount -t nfs4 -o addr=127.0.0.1,clientaddr=127.0.0.1,vers=4.2 127.0.0.1:/ /nfs || exit 1
"""
"""The kernel's server is told in advance what rpc.mountd would answer: /disk is the root (fsid 0)
for everybody, from any port, and paths are not checked (flags 0x2402)."""
SCRIPT = f"""\
mkdir /disk /fat && mount -o loop /disk.ext4 /disk && mount -o loop /disk.fat /fat || exit 1
mkdir /disk/many
for folder in /disk/many /fat; do
    cd $folder && for i in $(seq 600); do : >file-$i; done
done
cd /disk/folded && for name in Straße STRASSE-2 größe Ärger file FILE-2; do : >$name; done
[ -e strasse-2 -a -e GRÖSSE ] || {{ echo "the folder is not case-insensitive" >&2; exit 1; }}
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
{NFS}\
export TL_PLACES={":".join(PLACES)} TL_IDMAPPED={":".join(IDMAPPED)}
exec /labtests {PROGRAM}
"""
MODULES = ("loop", "vfat", "nls_cp437", "nls_ascii", "nfsd", "nfsv4", "overlay", "fuse")


def make_images(folder: Path) -> list[tuple[Path, str]]:
    """An ext4 with an index and a case-insensitive folder, and an empty VFAT."""
    ext4, fat = folder / "ext4", folder / "fat"
    for image in (ext4, fat):
        image.write_bytes(bytes(4 << 20))
    flags = "set_inode_field folded flags 0x40080000"  # EXT4_CASEFOLD_FL | EXT4_EXTENTS_FL
    for argv in (
        ["mke2fs", "-q", "-t", "ext4", "-O", "casefold", "-E", "encoding=utf8", "-F", ext4],
        ["debugfs", "-w", "-R", "mkdir folded", ext4],
        ["debugfs", "-w", "-R", flags, ext4],
        ["busybox", "mkdosfs", fat],
    ):
        env = {"PATH": tools.tool_path()}
        subprocess.run(argv, check=True, capture_output=True, timeout=60, env=env)
    return [(ext4, "/disk.ext4"), (fat, "/disk.fat")]


def test_entries_equal_plain_calls_on_each_file_system(kernel: str, tmp_path: Path) -> None:
    build_programs(Silent())
    config = lab.LabConfig(
        kernel=kernel,
        modules=(*guest_disk.modules(kernel, Silent()), *((name, "") for name in MODULES)),
        files=((BINARY, "/labtests"), *make_images(tmp_path)),
        timeout_s=900,
        append="init_on_alloc=0",
    )
    argv = guest_disk.command(["/bin/sh", "-c", SCRIPT])
    result = lab.run(config, argv)
    assert (result.status, result.stderr) == (0, b"")
    compared = dict(line.split(": ") for line in result.stdout.decode().splitlines())
    assert {place for place in PLACES if int(compared[place].split()[0]) > 2} == set(PLACES)
    assert {"/fuse", "/idmapped-many", "/idmapped-folded"} <= set(compared)
    assert not lab.splats(result.kernel_log)
