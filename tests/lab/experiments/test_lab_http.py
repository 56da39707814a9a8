# SPDX-License-Identifier: GPL-2.0-only
"""examples/http and its twins under friendly and hostile clients, in one VM, all at once.

http_clients.py, which runs in the guest with this machine's Python, says what is checked. The
example runs with the module and without it.
"""

from __future__ import annotations

import re

import pytest

from trapless.base.console import Silent
from trapless.base.paths import repo_root
from trapless.vm import lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3600)]

CLIENTS = repo_root() / "tests/lab/experiments/http_clients.py"
BUILD = repo_root() / "build"
RUNS = {
    "module": f"TRAPLESS_BACKEND=module python3 {CLIENTS} {BUILD}/examples/http 8001",
    "plain": f"TRAPLESS_BACKEND=plain python3 {CLIENTS} {BUILD}/examples/http 8002",
    "epoll": f"python3 {CLIENTS} {BUILD}/eval/servers/http/epoll 8003",
    "io_uring": f"python3 {CLIENTS} {BUILD}/eval/servers/http/io_uring 8004",
}
CHECKS_MIN = 300


def test_servers_are_right_and_survive_hostile_clients() -> None:
    started = "".join(f"{command} > /tmp/{name} 2>&1 &\n" for name, command in RUNS.items())
    shown = "".join(f"echo {name}: $(tail -n 3 /tmp/{name})\n" for name in RUNS)
    script = f"ip link set lo up\n{started}wait\n{shown}"
    config = lab.LabConfig(host_root=True, timeout_s=1800)
    result = lab.run(config, ["sh", "-c", script], progress=Silent())
    output = result.stdout.decode(errors="replace")
    for name in RUNS:
        checks = re.search(rf"^{name}: ok (\d+)$", output, re.MULTILINE)
        assert checks, output
        assert int(checks[1]) > CHECKS_MIN
