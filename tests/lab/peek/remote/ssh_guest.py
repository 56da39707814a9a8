# SPDX-License-Identifier: GPL-2.0-only
"""Runs a guest with an SSH server, beside this machine's files, for tests of `--ssh` and `--local`.

Owns the server (dropbear), its keys, and the way to it: a port of this machine that leads into the
guest. The guest's memory is a file as well, by which the tests know what is true.
"""

from __future__ import annotations

import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.command import wait_until
from tests.lab.peek.watched_guest import Guest, guest
from trapless.vm.qemu import GUEST_ADDRESS

NEEDED = ("ssh", "ssh-keygen", "dropbear", "dropbearkey")
PORT = 22
CONFIG = """\
Host guest
    HostName 127.0.0.1
    Port {port}
    User root
    IdentityFile {folder}/key
    IdentitiesOnly yes
    StrictHostKeyChecking no
    UserKnownHostsFile {folder}/known
    LogLevel ERROR
"""
NETWORK = """\
PATH=/usr/sbin:/usr/bin:/sbin:/bin
ip link set lo up; ip link set eth0 up; ip addr add {address}/24 dev eth0
"""
SERVER = """\
umask 077; mkdir -p /root/.ssh; echo '{key}' >/root/.ssh/authorized_keys
chmod 700 /root
dropbearkey -t ed25519 -f /root/host-key >/dev/null 2>&1
dropbear -r /root/host-key -s -p {port} -P /root/dropbear.pid 2>/root/dropbear.log
"""


def missing() -> str:
    """The programs that are not on this machine; empty where all are."""
    return ", ".join(name for name in NEEDED if shutil.which(name) is None)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def guest_with_server(folder: Path, kernel: str) -> Iterator[tuple[Guest, Path]]:
    """The guest, whose server answers `ssh guest`, and a folder whose `ssh` knows the way to it."""
    port, programs = free_port(), folder / "bin"
    programs.mkdir()
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True
    )
    (folder / "config").write_text(CONFIG.format(port=port, folder=folder))
    ssh = programs / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n')
    ssh.chmod(ssh.stat().st_mode | stat.S_IXUSR)
    options = {"kernel": kernel, "host_root": True, "forward": (port, PORT), "memory": "1G"}
    with guest(folder, **options) as running:
        key = (folder / "key.pub").read_text().strip()
        running.say(NETWORK.format(address=GUEST_ADDRESS) + SERVER.format(key=key, port=PORT))
        assert wait_until(lambda: b"SSH" in _greeting(port), 60), running.say(
            "cat /root/dropbear.log"
        )
        yield running, programs


def _greeting(port: int) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            return connection.recv(16)
    except OSError:
        return b""
