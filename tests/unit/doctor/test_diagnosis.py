# SPDX-License-Identifier: GPL-2.0-only
"""`trapless doctor`: every question on made-up machines, and the three ways of showing answers."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from trapless import abi
from trapless.base.console import Silent
from trapless.doctor import capabilities, diagnosis
from trapless.doctor.capabilities import Capability, Host

ROOT = Path(__file__).resolve().parents[3]


def host(tmp_path, files=None, *, uid=0):
    """A machine that consists of these files."""
    for name, text in (files or {}).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Host(tmp_path, uid, "9.9.9-made-up")


INTEL = "processor : 0\nflags\t\t: fpu vme vmx sse\n"
NO_VIRTUALISATION = "processor : 0\nflags\t\t: fpu vme sse hypervisor\n"
KALLSYMS = "0 T register_kprobe\n0 R sys_call_table\n0 T other\n"


@pytest.mark.parametrize(
    ("files", "ok", "says"),
    [
        ({"proc/cpuinfo": INTEL, "dev/kvm": ""}, True, "usable"),
        ({"proc/cpuinfo": INTEL.replace("vmx", "svm"), "dev/kvm": ""}, True, "usable"),
        ({"proc/cpuinfo": INTEL}, False, "no /dev/kvm"),
        ({"proc/cpuinfo": NO_VIRTUALISATION, "dev/kvm": ""}, False, "alone is not enough"),
        ({"proc/cpuinfo": NO_VIRTUALISATION}, False, "no virtualisation"),
        ({}, False, "no virtualisation"),
    ],
)
def test_kvm_needs_the_processor_and_the_device(tmp_path, files, ok, says):
    answer = capabilities.acceleration(host(tmp_path, files))
    assert answer.ok is ok and says in answer.found
    assert ok or "emulated" in answer.remedy


def test_what_setup_misses_is_a_list(tmp_path, monkeypatch):
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts/setup"
    lines = ("missing packages:", "  git - tests, too", "  make - builds", ".venv is missing")
    script.write_text(f"#!/bin/sh\nprintf 'setup: %s\\n' {shlex.join(lines)} >&2; exit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr(capabilities, "repo_root", lambda: tmp_path)
    found = capabilities.build_tools(host(tmp_path)).found
    assert found == "missing packages: git - tests, too; make - builds; .venv is missing"


def test_symbols(tmp_path):
    assert not capabilities.kernel_symbols(host(tmp_path)).ok
    answer = capabilities.kernel_symbols(host(tmp_path, {"proc/kallsyms": KALLSYMS}))
    assert answer.ok
    text = KALLSYMS.replace("sys_call_table", "ia32_sys_call_table")
    answer = capabilities.kernel_symbols(host(tmp_path, {"proc/kallsyms": text}))
    assert not answer.ok and "lacks sys_call_table" in answer.found
    assert "CONFIG_KALLSYMS_ALL" in answer.remedy


def test_headers(tmp_path):
    answer = capabilities.headers(host(tmp_path, {"proc/modules": ""}))
    assert not answer.ok and "linux-headers-9.9.9-made-up" in answer.remedy
    files = {"lib/modules/9.9.9-made-up/build/Makefile": ""}
    assert capabilities.headers(host(tmp_path, files)).ok


def test_headers_are_no_remedy_where_modules_are_not_taken(tmp_path):
    answer = capabilities.headers(host(tmp_path))
    assert not answer.ok and "apt-get" not in answer.remedy


STATUS = "Name:\tx\nCapEff:\t000001ffffffffff\n"


@pytest.mark.parametrize(
    ("files", "uid", "says"),
    [
        ({}, 0, "CONFIG_MODULES"),
        ({"proc/modules": "", "proc/sys/kernel/modules_disabled": "1\n"}, 0, "next boot"),
        ({"proc/modules": "", "proc/self/status": STATUS}, 1000, "only root"),
        ({"proc/modules": "", "proc/self/status": "CapEff:\t00000000a80425fb\n"}, 0, "container"),
    ],
)
def test_why_modules_cannot_be_loaded(tmp_path, files, uid, says):
    answer = capabilities.loading(host(tmp_path, files, uid=uid))
    assert not answer.ok and says in answer.found and answer.remedy


def test_modules_can_be_loaded(tmp_path):
    files = {"proc/modules": "", "proc/self/status": STATUS}
    assert capabilities.loading(host(tmp_path, files)).ok


LOCKDOWN = "sys/kernel/security/lockdown"
ENFORCE = "sys/module/module/parameters/sig_enforce"
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61"


@pytest.mark.parametrize(
    ("files", "ok", "says"),
    [
        ({"proc/modules": ""}, True, "accepted"),
        ({"proc/modules": "", LOCKDOWN: "[none] integrity confidentiality\n"}, True, "accepted"),
        ({"proc/modules": "", LOCKDOWN: "none [integrity]\n"}, False, "locked down (integrity)"),
        ({"proc/modules": "", ENFORCE: "Y\n"}, False, "sig_enforce"),
        ({"proc/modules": "", SECURE_BOOT: b"\6\0\0\0\1"}, True, "Secure Boot is on"),
        ({"proc/modules": "", SECURE_BOOT: b"\6\0\0\0\0"}, True, "accepted"),
        ({}, False, "no modules"),
    ],
)
def test_unsigned_modules(tmp_path, files, ok, says):
    answer = capabilities.signatures(host(tmp_path, files))
    assert answer.ok is ok and says in answer.found


def test_memory(tmp_path):
    little = {"proc/meminfo": "MemTotal: 99999999 kB\nMemAvailable:   1000000 kB\n"}
    assert not capabilities.memory(host(tmp_path, little)).ok
    enough = {"proc/meminfo": "MemAvailable:   4000000 kB\n"}
    assert capabilities.memory(host(tmp_path, enough)).ok


def test_the_device_is_missing(tmp_path):
    answer = capabilities.device(host(tmp_path, {"proc/modules": ""}))
    assert not answer.ok and "is missing" in answer.found and "module load" in answer.remedy
    answer = capabilities.device(host(tmp_path, {"sys/module/trapless/version": ""}))
    assert "though the module is loaded" in answer.found


def test_the_device_is_something_else(tmp_path):
    answer = capabilities.device(host(tmp_path, {"dev/trapless": ""}))
    assert not answer.ok and "does not answer" in answer.found


@pytest.mark.parametrize(("version", "ok"), [(abi.VERSION, True), (abi.VERSION + 1, False)])
def test_the_device_answers(tmp_path, monkeypatch, version, ok):
    def answer(_fd, request, info):
        assert request == abi.IOC_INFO and info.size == 48
        info.abi, info.version = version, b"1.2.3"

    monkeypatch.setattr(fcntl, "ioctl", answer)
    capability = capabilities.device(host(tmp_path, {"dev/trapless": ""}))
    assert capability.ok is ok and capability.found == f"version 1.2.3, ABI {version}"


def test_the_device_may_not_be_opened(tmp_path, monkeypatch):
    def refuse(*_arguments, **_options):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    answer = capabilities.device(host(tmp_path))
    assert not answer.ok and answer.found == "Permission denied"


@pytest.mark.parametrize(
    ("result", "ok", "says"),
    [
        (-errno.ENOENT, False, "shows this kernel none"),
        (-errno.EACCES, False, "perf_event_paranoid is 3"),
        (-errno.ENOSYS, False, "not implemented"),
    ],
)
def test_counters(tmp_path, monkeypatch, result, ok, says):
    monkeypatch.setattr(capabilities, "_system_call", lambda *_: result)
    answer = capabilities.counters(host(tmp_path, {"proc/sys/kernel/perf_event_paranoid": "3\n"}))
    assert answer.ok is ok and says in answer.found


def test_the_system_call_that_questions_make_is_real():
    assert capabilities._system_call(39) == os.getpid()
    assert capabilities._system_call(3, -1) == -errno.EBADF
    assert capabilities._system_call(83, b"/proc/no-folder-here\0", 0) == -errno.ENOENT


def test_io_uring_that_was_switched_off(tmp_path, monkeypatch):
    monkeypatch.setattr(capabilities, "_system_call", lambda *_: -errno.EPERM)
    answer = capabilities.io_uring(host(tmp_path, {"proc/sys/kernel/io_uring_disabled": "2"}))
    assert not answer.ok and "io_uring_disabled=0 (it is 2)" in answer.remedy


def test_versions():
    assert capabilities.satisfies("3.10.2", ">=3.9,<4")
    assert not capabilities.satisfies("3.8", ">=3.9,<4")
    assert not capabilities.satisfies("4.0.0rc1", ">=3.9,<4")
    assert capabilities.satisfies("1.0", "")


def test_missing_python_packages_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(
        capabilities, "_installed", lambda name: None if name == "rich" else "10000.0"
    )
    answer = capabilities.python_packages(host(tmp_path))
    assert not answer.ok and "rich>=13,<16 (absent)" in answer.found


def test_packages_for_figures_are_no_need_of_the_lab(tmp_path, monkeypatch):
    monkeypatch.setattr(
        capabilities, "_installed", lambda name: None if name == "matplotlib" else "10000.0"
    )
    found = capabilities.python_packages(host(tmp_path)).found
    assert "matplotlib" not in found and "jinja2" not in found
    answer = capabilities.page_packages(host(tmp_path))
    assert not answer.ok and "matplotlib>=3.6,<4 (absent)" in answer.found
    assert "jinja2" not in answer.remedy
    assert "python" in diagnosis.LAB_NEEDS and answer.id not in diagnosis.LAB_NEEDS


def test_no_qemu(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = capabilities.emulator(host(tmp_path))
    assert not answer.ok and "apt-get install qemu-system-x86" in answer.remedy
    answer = capabilities.fetching(host(tmp_path))
    assert not answer.ok and "no Debian machine" in answer.found
    answer = capabilities.newest_kernel(host(tmp_path))
    assert not answer.ok and answer.remedy == "install or repair unshare"


@pytest.mark.parametrize(
    ("name", "question"),
    [("qemu-system-x86_64", capabilities.emulator), ("unshare", capabilities.newest_kernel)],
)
def test_a_program_that_does_not_end_is_named_with_what_helps(
    tmp_path, monkeypatch, name, question
):
    (tmp_path / name).write_text("#!/bin/sh\nexec /bin/sleep 600\n")
    (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(capabilities, "TOOL_TIMEOUT_S", 0.2)
    answer = question(host(tmp_path))
    assert not answer.ok and "did not end within 0.2 s" in answer.found and name in answer.found
    assert "ask again later" in answer.remedy


def test_each_step_names_what_is_looked_at(tmp_path, monkeypatch):
    class Steps(Silent):
        def __init__(self):
            self.texts = []

        def step(self, text):
            self.texts.append(text)

    monkeypatch.setattr(diagnosis, "GROUPS", (("The command", (capabilities.memory,)),) * 2)
    progress = Steps()
    diagnosis.examine(host(tmp_path), progress=progress)
    assert progress.texts[0] == "looking at the command (memory)"
    assert progress.texts[-2].startswith("looking at supervisor mode")
    assert progress.texts[-1].startswith("looking at peek")


def test_an_empty_cache_is_no_failure_of_the_lab(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAPLESS_CACHE", str(tmp_path / "cache"))
    answer = capabilities.kernel_cache(host(tmp_path))
    assert not answer.ok and answer.found == "none" and "fetched when first used" in answer.remedy
    assert "may be wanted" in capabilities.disk_space(host(tmp_path)).found


def test_a_mirror_that_does_not_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAPLESS_MIRROR", "http://127.0.0.1:1/debian")
    answer = capabilities.mirror(host(tmp_path))
    assert not answer.ok and "TRAPLESS_MIRROR" in answer.remedy


@pytest.mark.slow
def test_the_network_is_asked_on_demand_only(monkeypatch):
    asked = []
    answer = Capability("mirror", "the mirror answers", True, "made up")
    monkeypatch.setattr(capabilities, "mirror", lambda _host: asked.append(1) or answer)
    diagnosis.examine(Host())
    assert not asked
    diagnosis.examine(Host(), online=True)
    assert asked


def made_up(**no):
    """A machine that can do everything but what is named."""
    names = (*diagnosis.LAB_NEEDS, *diagnosis.HOST_NEEDS, "kernels", "fetch", "kvm", "device")
    answers = [Capability(n, n, n not in no, f"{n} seen", no.get(n, "")) for n in names]
    return (diagnosis.Group("All", tuple(answers)),)


def test_verdicts():
    lab, host_line, files = diagnosis.verdict(made_up())
    assert "at full speed" in lab and "is loaded" in host_line and "by the module" in files
    lab, host_line, files = diagnosis.verdict(made_up(kvm="", device=""))
    assert "emulated" in lab and "module load" in host_line and "by threads" in files
    lab, host_line, files = diagnosis.verdict(made_up(qemu="", device="", loading=""))
    assert "does not run here; it lacks: qemu" in lab and "cannot take" in host_line
    assert "lacks: a kernel" in diagnosis.verdict(made_up(kernels="", fetch=""))[0]
    assert "lab runs" in diagnosis.verdict(made_up(fetch=""))[0]


def test_every_no_has_a_remedy_and_every_answer_says_what_was_seen():
    groups = diagnosis.examine(Host())
    answers = [one for group in groups for one in group.capabilities]
    assert len({one.id for one in answers}) == len(answers)
    assert all(one.found for one in answers)
    assert all(one.remedy for one in answers if not one.ok)


def test_plain_lines_for_pipes():
    stream = io.StringIO()
    diagnosis.show(made_up(kvm="buy another"), stream)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "All:"
    assert "  no   kvm: kvm seen" in lines and "       -> buy another" in lines
    assert "\x1b" not in stream.getvalue()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_narrow_terminal_shows_each_answer_and_its_remedy(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(diagnosis, "terminal_columns", lambda stream: 40, raising=False)
    stream = Terminal()
    diagnosis.show(made_up(kvm="buy another"), stream)
    assert "-> buy another" in stream.getvalue() and "…" not in stream.getvalue()


def test_a_table_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    diagnosis.show(made_up(kvm="buy another"), stream)
    assert "\x1b[" in stream.getvalue() and "buy another" in stream.getvalue()


@pytest.mark.slow
def test_the_command():
    def run(*arguments):
        command = [sys.executable, "-m", "trapless", "doctor", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    done = run("--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert len(data["verdict"]) == 3
    assert {"group", "id", "title", "ok", "found", "remedy"} <= data["capabilities"][0].keys()
    assert run().returncode == 0
    assert run("execve").returncode == 2
