# SPDX-License-Identifier: GPL-2.0-only
"""Whatever the operating system refuses, the message names the file or the call."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from trapless.base.os_errors import explained


def message_of(action):
    with pytest.raises(OSError) as raised:
        action()
    return str(explained(raised.value))


def test_a_file_is_named(tmp_path):
    missing = tmp_path / "missing"
    assert message_of(lambda: missing.open()) == f"{missing}: No such file or directory"
    assert message_of(lambda: os.open(bytes(missing), 0)) == f"{missing}: No such file or directory"
    wanted = f"{missing} -> {tmp_path}/x: No such file or directory"
    assert message_of(lambda: os.rename(missing, tmp_path / "x")) == wanted


def test_without_a_file_the_call_is_named_also_within_other_code():
    assert message_of(lambda: os.close(-1)) == "close: Bad file descriptor"

    def refuse():
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    assert message_of(refuse) == "refuse: Function not implemented"
    assert str(explained(TimeoutError("timed out"))) == "the system: timed out"


def test_a_limit_is_named_with_what_raises_it():
    code = (
        "import os, resource; from trapless.base.os_errors import explained\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "try: os.memfd_create('x')\n"
        "except OSError as error: print(explained(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    reason = "Too many open files; the limit of open files is too low (ulimit -n)"
    assert done.stdout == f"module: {reason}\n", done.stderr  # -c has no source to quote
