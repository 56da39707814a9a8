# SPDX-License-Identifier: GPL-2.0-only
"""The table of system calls as people see it: read whole, chosen from, shown; never guessed."""

from __future__ import annotations

import ctypes
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trapless import calls
from trapless.base import paths
from trapless.base.console import TraplessError
from trapless.calls import Call, CallClass

ROOT = Path(__file__).resolve().parents[3]
ROWS = """\
/* A comment with TL_ANY(name, nr) in it. */
TL_ANY(read, 0)
TL_BATCH_ONLY(rt_sigprocmask, 14, "changes the \\"mask\\"")
TL_NULL_MASK(ppoll, 58, 3, "swaps the mask")
TL_REFUSED(execve, 59, "replaces the program")
TL_SELF_VALUE(wait4, 61, 2, 0x20000000, 0x20000000, "a flag means the thread")
"""


def test_rows_are_read():
    assert calls.parse(ROWS) == [
        Call(0, "read", CallClass.ANY),
        Call(14, "rt_sigprocmask", CallClass.BATCH_ONLY, 'changes the "mask"'),
        Call(58, "ppoll", CallClass.NULL_MASK, "swaps the mask"),
        Call(59, "execve", CallClass.REFUSED, "replaces the program"),
        Call(61, "wait4", CallClass.SELF_VALUE, "a flag means the thread"),
    ]


def test_an_architecture_has_its_own_numbers_and_calls():
    rows = """\
TL_ANY(read, TL_BY_ARCH(0, 63))
TL_REFUSED(execve, TL_BY_ARCH(59, 221),
\t"replaces the program")
#ifdef __x86_64__
TL_ANY(open, 2)
#endif
"""
    read, execve = calls.parse(rows, machine="aarch64")
    assert (read.nr, execve.nr, execve.reason) == (63, 221, "replaces the program")
    assert [call.nr for call in calls.parse(rows)] == [0, 2, 59]
    with pytest.raises(TraplessError, match="line 2: write has the number of read"):
        calls.parse("TL_ANY(read, 3)\nTL_ANY(write, TL_BY_ARCH(4, 3))\n", machine="aarch64")


@pytest.mark.parametrize(
    "row",
    [
        "TL_ANY(read, 0",
        'TL_ANY(read, 0, "why")',
        "TL_REFUSED(execve, 59)",
        'TL_BATCH_ONLY(a, x, "why")',
        "TL_MAYBE(read, 0)",
        'TL_NULL_MASK(ppoll, 271, "why")',
        'TL_REFUSED(execve, 59, 3, "why")',
        'TL_SELF_VALUE(wait4, 61, 2, "why")',
        'TL_NULL_MASK(ppoll, 271, 3, 0x1, 0x1, "why")',
        "TL_ANY(read, 0) TL_ANY(write, 1)",
    ],
)
def test_a_damaged_row_is_named_with_its_line(row):
    with pytest.raises(TraplessError, match=r"line 2: not a row .*" + re.escape(row[:8])):
        calls.parse("/* head */\n" + row + "\n")


def test_rows_out_of_order_and_no_rows_are_errors():
    with pytest.raises(TraplessError, match=r"read \(0\) stands after 1"):
        calls.parse("TL_ANY(write, 1)\nTL_ANY(read, 0)\n")
    with pytest.raises(TraplessError, match="holds no row"):
        calls.parse("/* nothing */\n")


def test_every_row_of_the_table_is_what_the_library_says():
    """Text and compiler agree about every number up to the table's end, and a few beyond."""
    program = r"""
#include <stdio.h>
#include <trapless.h>
int main(void)
{
	for (unsigned int nr = 0; nr < 600; nr++) {
		const char *name, *reason;
		int class = tl_call_get_class(nr, &name, &reason);

		if (class >= 0)
			printf("%u %s %d %s\n", nr, name, class, reason);
	}
	return 0;
}
"""
    subprocess.run(["make", "-s", "build/lib/libtrapless.a"], cwd=ROOT, check=True)
    binary = ROOT / "build" / "tests" / "calls-table"
    binary.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-x", "c", "-", "-x", "none", "-Iinclude", "-Iinclude/uapi", "-o", binary]
    command += ["build/lib/libtrapless.a", "-pthread"]
    subprocess.run(command, input=program, text=True, cwd=ROOT, check=True)
    said = subprocess.run([binary], capture_output=True, text=True, check=True).stdout
    number = {
        CallClass.REFUSED: 0,
        CallClass.BATCH_ONLY: 1,
        CallClass.ANY: 2,
        CallClass.NULL_MASK: 3,
        CallClass.SELF_VALUE: 4,
    }
    read = [f"{c.nr} {c.name} {number[c.allowed]} {c.reason}" for c in calls.load()]
    assert said.splitlines() == read
    assert len(read) > 300


def test_what_must_never_be_wrapped_is_refused():
    table = {call.name: call for call in calls.load()}
    for name in ("execve", "execveat", "exit", "exit_group", "fork", "vfork", "clone", "clone3"):
        assert table[name].allowed is CallClass.REFUSED, name
    for name in ("rt_sigreturn", "restart_syscall", "ptrace", "seccomp"):
        assert table[name].allowed is CallClass.REFUSED, name
    for name in ("pselect6", "ppoll", "epoll_pwait"):
        assert table[name].allowed is CallClass.NULL_MASK, name
    assert all(call.reason for call in table.values() if call.allowed is not CallClass.ANY)


def test_every_call_of_the_newest_kernel_has_a_row():
    """Name by name; and none that this kernel serves is said to be served by no kernel."""
    folder = paths.cache_dir() / "kernels" / "newest" / "root" / "usr" / "src"
    headers = sorted(folder.glob("linux-headers-*-amd64"))
    if not headers:
        pytest.skip("the newest kernel's headers are not in the cache: `make matrix` fetches them")
    generated = headers[-1] / "arch/x86/include/generated"
    numbers = (generated / "uapi/asm/unistd_64.h").read_text()
    served = (generated / "asm/syscalls_64.h").read_text()
    kernel = {int(m[2]): m[1] for m in re.finditer(r"#define __NR_(\w+) (\d+)", numbers)}
    kernel = {nr: name for nr, name in kernel.items() if name != "syscalls"}
    assert kernel == {call.nr: call.name for call in calls.load()}
    unserved = {int(nr) for nr in re.findall(r"\((\d+), sys_ni_syscall\)", served)}
    for call in calls.load():
        assert call.reason != "no kernel implements it" or call.nr in unserved, call.name


def test_numbers_are_the_kernels():
    """By asking the C library for a few that differ between architectures."""
    table = {call.name: call.nr for call in calls.load()}
    libc = ctypes.CDLL(None)
    assert libc.syscall(table["getpid"]) == os.getpid()
    assert libc.syscall(table["getppid"]) == os.getppid()


def shown(*wanted, as_json=False):
    stream = io.StringIO()
    calls.show(wanted, as_json=as_json, stream=stream)
    return stream.getvalue()


def test_choosing():
    assert [line.split()[1] for line in shown("execve", "3").splitlines()] == ["close", "execve"]
    assert all(" refused " in line for line in shown("refused").splitlines())
    assert [line.split()[1] for line in shown("ptrace", "read", "any").splitlines()] == ["read"]
    assert len(shown().splitlines()) == len(calls.load())
    with pytest.raises(TraplessError, match="no system call 'nosuch'") as error:
        shown("nosuch")
    assert error.value.status == 2


def test_json_is_the_table():
    rows = json.loads(shown("execve", as_json=True))["calls"]
    assert [(row["nr"], row["name"], row["class"]) for row in rows] == [(59, "execve", "refused")]
    assert rows[0]["reason"]


def test_a_missing_table_says_where_it_was_looked_for(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "repo_root", lambda: tmp_path)
    monkeypatch.setattr(paths, "SYSTEM_HEADERS", (str(tmp_path / "system"),))
    with pytest.raises(TraplessError, match=r"in none of .*uapi/linux, .*/system; `make install`"):
        calls.load()
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / calls.HEADER).write_text(ROWS)
    assert len(calls.load()) == 5


def on_a_terminal(lines, *arguments):
    """What the command prints on a terminal of so many lines, and its status."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(COLUMNS="90", LINES=str(lines), PAGER="sed s/^/paged:/", TERM="xterm")
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-m", "trapless", "doctor", *arguments])
    text = b""
    try:
        while piece := os.read(fd, 65536):
            text += piece
    except OSError:  # the terminal is gone: so it ends on Linux
        pass
    os.close(fd)
    return text.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.slow
def test_a_long_table_is_paged_on_a_terminal_and_a_short_one_is_not():
    text, status = on_a_terminal(40, "--calls")
    assert status == 0 and text.count("paged:") > 300
    text, status = on_a_terminal(40, "--calls", "execve")
    assert status == 0 and "paged:" not in text and "replaces the program" in text


def test_a_reader_that_leaves_early_is_no_error():
    command = f"{sys.executable} -m trapless doctor --calls | head -1"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("   0  read                     any\n", "")
