# SPDX-License-Identifier: GPL-2.0-only
"""Loading the module into this machine's kernel: refused with the reason, and never by accident.

It owns the tests of module.py. None of them loads anything.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from trapless import module
from trapless.abi import Refusal
from trapless.base import tools
from trapless.base.console import Silent, TraplessError
from trapless.stock import kbuild
from trapless.supervisor import control
from trapless.supervisor.refusals import of_mask


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine in a folder: nothing is loaded, its kernel takes modules, we are root."""
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(module, "_run", lambda argv: pytest.fail(f"ran {argv}"))
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "modules").touch()
    return tmp_path


def headers(host: Path) -> None:
    build = host / "lib" / "modules" / os.uname().release / "build"
    build.mkdir(parents=True)
    (build / "Makefile").touch()


def loaded(host: Path) -> None:
    (host / "sys" / "module" / "trapless").mkdir(parents=True)


def test_a_kernel_without_modules_says_so(host: Path) -> None:
    (host / "proc" / "modules").unlink()
    for attempt in (module.build, module.load):
        with pytest.raises(TraplessError, match=r"takes no modules.*trapless lab"):
            attempt(Silent())


def test_missing_headers_are_named(host: Path) -> None:
    with pytest.raises(TraplessError, match=r"apt-get install linux-headers-"):
        module.build(Silent())


def test_loading_needs_root(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(TraplessError, match="sudo"):
        module.load(Silent())
    loaded(host)
    with pytest.raises(TraplessError, match="sudo"):
        module.unload(Silent())


def test_a_loaded_module_is_not_loaded_again(host: Path) -> None:
    loaded(host)
    with pytest.raises(TraplessError, match="loaded already"):
        module.load(Silent())


def test_a_module_that_is_not_there_cannot_be_unloaded(host: Path) -> None:
    with pytest.raises(TraplessError, match="not loaded"):
        module.unload(Silent())


def test_a_machine_that_switched_modules_off_says_so(host: Path) -> None:
    sysctl = host / "proc" / "sys" / "kernel" / "modules_disabled"
    sysctl.parent.mkdir(parents=True)
    sysctl.write_text("1\n")
    headers(host)
    with pytest.raises(TraplessError, match="modules_disabled"):
        module.load(Silent())


def test_the_module_that_was_built_is_loaded(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    headers(host)
    ran: list[list[str]] = []
    built = host / "x.ko"
    built.write_bytes(b"\0parm=parameter:what it does\0")
    monkeypatch.setattr(kbuild, "module_for", lambda *_: built)
    monkeypatch.setattr(tools, "require_tools", lambda *_: None)
    monkeypatch.setattr(module, "_run", lambda argv: ran.append(list(argv)))
    module.load(Silent(), ("parameter=1",))
    assert ran == [["insmod", str(built), "parameter=1"]]
    with pytest.raises(TraplessError, match="no parameter 'paramter'; it has parameter") as error:
        module.load(Silent(), ("paramter=1",))
    assert error.value.status == 2 and len(ran) == 1


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("insmod: ERROR: could not insert module: Key was rejected by service", "Secure Boot"),
        ("insmod: ERROR: could not insert module: Operation not permitted", "locked down"),
        ("insmod: ERROR: could not insert module: Invalid module format", "reboot"),
        ("insmod: ERROR: could not insert module: No such device", "dmesg"),
    ],
)
def test_a_refusal_is_explained(
    host: Path, monkeypatch: pytest.MonkeyPatch, said: str, means: str
) -> None:
    headers(host)
    monkeypatch.setattr(kbuild, "module_for", lambda *_: Path("/x.ko"))
    monkeypatch.setattr(tools, "require_tools", lambda *_: None)
    monkeypatch.setattr(module, "_run", lambda _: said)
    with pytest.raises(TraplessError) as caught:
        module.load(Silent())
    assert said in str(caught.value)
    assert means in str(caught.value)


def test_who_is_in_supervisor_mode_is_named(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(host)
    processes = [SimpleNamespace(pid=pid) for pid in (0, 7, 9)]
    monkeypatch.setattr(control, "processes", lambda: processes)
    monkeypatch.setattr(tools, "require_tools", lambda *_: None)
    monkeypatch.setattr(module, "_run", lambda _: "rmmod: Module trapless is in use")
    with pytest.raises(TraplessError, match=r"in use; in supervisor .*switch --user 7 9$"):
        module.unload(Silent())


def test_who_uses_the_device_is_named(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(host)
    for pid, target in ((7, "/dev/trapless"), (8, "/dev/null")):
        (host / "proc" / str(pid) / "fd").mkdir(parents=True)
        (host / "proc" / str(pid) / "comm").write_text(f"server{pid}\n")
        (host / "proc" / str(pid) / "fd" / "3").symlink_to(target)
    monkeypatch.setattr(tools, "require_tools", lambda *_: None)
    monkeypatch.setattr(module, "_run", lambda _: "rmmod: Module trapless is in use")
    with pytest.raises(TraplessError, match=r"in use; these processes.*: 7 \(server7\)$"):
        module.unload(Silent())


@pytest.mark.parametrize(
    ("parameters", "mask", "notes"),
    [
        ((), 1 << Refusal.PARAMETER, 0),
        (("supervisor=0",), 1 << Refusal.PARAMETER, 0),
        (("supervisor=1",), 0, 0),
        (("supervisor=1",), 1 << Refusal.PTI | 1 << Refusal.LOCKDOWN, 2),
    ],
)
def test_supervisor_mode_that_was_asked_for_and_is_refused_is_explained(
    host: Path, monkeypatch: pytest.MonkeyPatch, parameters: tuple[str, ...], mask: int, notes: int
) -> None:
    said: list[str] = []
    progress = Silent()
    monkeypatch.setattr(progress, "note", said.append)
    built = host / "trapless.ko"
    built.write_bytes(b"\0parm=supervisor:gives up protection\0")
    monkeypatch.setattr(module, "build", lambda _: built)
    monkeypatch.setattr(tools, "require_tools", lambda *_: None)
    monkeypatch.setattr(module, "_run", lambda _: None)
    monkeypatch.setattr(control, "refusals", lambda _: mask)
    module.load(progress, parameters)
    assert len(said) == notes
    for line, row in zip(said, of_mask(mask), strict=False):
        assert row.reason in line and row.remedy in line
