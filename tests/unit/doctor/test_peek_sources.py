# SPDX-License-Identifier: GPL-2.0-only
"""`trapless doctor` about peek: its answers are those of peek, on made-up machines."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner

from tests.unit.doctor.test_diagnosis import host
from trapless.base.missing import remedy
from trapless.cli import cli
from trapless.doctor import peek_sources
from trapless.peek.kernel.memories.kcore import KCORE

NOTE = {"sys/kernel/vmcoreinfo": "0x1000 1024"}
SYMBOLS = {"proc/kallsyms": "0 D init_task\n0 R __start_BTF\n"}


def guest(pid, name):
    argv = ("qemu-system-x86_64", "-name", name, "-m", "1G")
    return {f"proc/{pid}/cmdline": "\0".join(argv) + "\0"}


def test_the_machines_that_may_be_read_are_named(tmp_path, monkeypatch):
    answer = peek_sources.guests(host(tmp_path, {"proc/self": ""}))
    assert not answer.ok and answer.found == "no virtual machine runs on this host"
    assert "trapless lab" in answer.remedy
    made = host(tmp_path, guest(30, "web") | guest(31, "db"))
    answer = peek_sources.guests(made)
    assert answer.ok and answer.found.startswith("2 of 2: process 30 (web), process 31 (db); 0 ")
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(tmp_path).st_uid + 1000)
    answer = peek_sources.guests(made)
    assert not answer.ok and "to observe other users' takes root" in answer.found


@pytest.mark.parametrize(
    ("files", "uid", "ok", "says", "helps"),
    [
        ({}, 0, False, "has no /proc/kcore", "outside of the container"),
        ({"proc/kcore": ""} | NOTE | SYMBOLS, 0, True, f"{KCORE} can be read", ""),
        ({"proc/kcore": ""} | SYMBOLS, 0, False, "has no /sys/kernel/vmcoreinfo", "distribution"),
        ({"proc/kcore": ""} | NOTE, 0, False, "does not list init_task, __start_BTF", "distrib"),
    ],
)
def test_the_kernel_of_this_machine(tmp_path, files, uid, ok, says, helps):
    answer = peek_sources.own_kernel(host(tmp_path, files, uid=uid))
    assert answer.ok is ok and says in answer.found and helps in answer.remedy
    assert ok or answer.remedy


def test_what_the_commands_lack_is_named_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(peek_sources, "find_spec", lambda name: None)
    monkeypatch.setattr(peek_sources, "repo_root", lambda: tmp_path)
    monkeypatch.setattr(peek_sources, "build_dir", lambda: tmp_path / "build")
    answer = peek_sources.programs()
    assert not answer.ok
    for name in ("pyarrow", "drgn", "the sampler"):
        assert name in answer.found
    assert answer.remedy.endswith("; `make workloads` builds it") and answer.remedy.startswith(
        remedy("pyarrow")
    )


def test_operators_of_vms_may_ask_for_peek_alone():
    done = CliRunner().invoke(cli, ["doctor", "peek"])
    titles = [line for line in done.output.splitlines() if not line.startswith(" ")]
    assert done.exit_code == 0 and titles == [f"{peek_sources.TITLE}:"]
    done = CliRunner().invoke(cli, ["doctor", "peek", "getpid"])
    assert done.exit_code == 2 and "names of calls go with --calls" in done.output
