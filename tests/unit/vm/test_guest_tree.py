# SPDX-License-Identifier: GPL-2.0-only
"""What goes into a guest: lookup of the command, its companions, the records for init."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from trapless.base.architecture import ARM64
from trapless.base.console import Silent, TraplessError
from trapless.base.paths import repo_root
from trapless.vm import guest_tree
from trapless.vm.guest_tree import GuestPlan
from trapless.vm.initramfs import Initramfs


def script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def read_records(data: bytes) -> list[tuple[str, str]]:
    pairs = [record.partition(b"=") for record in data.split(b"\0")[:-1]]
    return [(os.fsdecode(key), os.fsdecode(value)) for key, _, value in pairs]


@pytest.mark.slow
def test_command_comes_with_loader_and_libraries():
    tree = guest_tree.build(GuestPlan(("/bin/ls", "-l")), Silent())
    assert "/bin/ls" in tree
    assert "/lib64/ld-linux-x86-64.so.2" in tree
    assert any("libc.so.6" in name for name in tree._entries)
    assert "/init" in tree


def test_name_means_the_hosts_program_first(tmp_path, monkeypatch):
    mine = script(tmp_path / "ls", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert guest_tree.find_program("ls", Path("/")) == mine


def test_busybox_applet_serves_where_the_host_has_none(monkeypatch, tmp_path):
    for name in ("as", "busybox", "cc", "ld"):
        (tmp_path / name).symlink_to(f"/bin/{name}")
    monkeypatch.setattr("trapless.base.tools.tool_path", lambda: str(tmp_path))
    tree = guest_tree.build(GuestPlan(("vi",)), Silent())
    records = read_records(tree._entries["trapless/config"].content)
    assert ("arg", "vi") in records
    assert "exec" not in dict(records)


def test_cross_compiler_without_c_library_names_its_package(own_cache, monkeypatch, tmp_path):
    program = '[ "$1" = --version ] || { echo no stdio.h; exit 1; }'
    script(tmp_path / "aarch64-linux-gnu-gcc", f"#!/bin/sh\n{program}\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(TraplessError, match=r"libc6-dev-arm64-cross\):\n *no stdio\.h"):
        guest_tree.init_program(Silent(), ARM64)


def test_unknown_command_is_127():
    with pytest.raises(TraplessError, match="no program 'no-such-program'") as caught:
        guest_tree.build(GuestPlan(("no-such-program",)), Silent())
    assert caught.value.status == 127


@pytest.mark.parametrize("host_root", [True, False])
def test_a_program_of_the_checkout_that_is_not_built_is_named_with_the_remedy(host_root):
    plan = GuestPlan(("build/examples/none",), cwd=repo_root(), host_root=host_root)
    words = "no program 'build/examples/none' .*; `make workloads` builds the examples"
    with pytest.raises(TraplessError, match=words) as caught:
        guest_tree.build(plan, Silent())
    assert caught.value.status == 127


def test_relative_path_is_taken_from_cwd(tmp_path):
    program = script(tmp_path / "run", "#!/bin/sh\n")
    assert guest_tree.find_program("./run", tmp_path) == program


def test_file_that_is_not_executable_is_126(tmp_path):
    script(tmp_path / "data", "text", 0o644)
    with pytest.raises(TraplessError, match="not an executable file") as caught:
        guest_tree.find_program("./data", tmp_path)
    assert caught.value.status == 126


def test_script_brings_its_interpreter(tmp_path):
    program = script(tmp_path / "run", "#!/bin/bash -e\necho\n")
    tree = Initramfs()
    guest_tree.add_file(tree, program, "", "/run-me")
    assert "/bin/bash" in tree
    assert "/lib64/ld-linux-x86-64.so.2" in tree


def test_env_script_brings_env_and_interpreter(tmp_path):
    program = script(tmp_path / "run", "#!/usr/bin/env -S bash -e\n")
    tree = Initramfs()
    guest_tree.add_file(tree, program, "", "/run-me")
    assert "/usr/bin/env" in tree
    assert "/usr/bin/bash" in tree or "/bin/bash" in tree


def test_missing_interpreter_is_named(tmp_path):
    program = script(tmp_path / "run", "#!/opt/none/such\n")
    with pytest.raises(TraplessError, match="wants the interpreter '/opt/none/such'"):
        guest_tree.add_file(Initramfs(), program, "", "/run-me")


def test_scripts_that_interpret_each_other_end(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    script(first, f"#!{second}\n")
    script(second, f"#!{first}\n")
    tree = Initramfs()
    guest_tree.add_file(tree, first, "", str(first))
    assert str(second) in tree


def test_folder_is_copied_with_modes(tmp_path):
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner/file").write_text("x")
    folder.chmod(0o711)
    tree = Initramfs()
    guest_tree.add_file(tree, folder, "", "/data")
    assert tree._entries["data"].mode & 0o777 == 0o711
    assert "/data/inner/file" in tree


def test_missing_file_is_an_error(tmp_path):
    with pytest.raises(TraplessError, match=r"cannot copy .*nothing"):
        guest_tree.add_file(Initramfs(), tmp_path / "nothing", "", "/x")


def test_guest_path_must_be_absolute(tmp_path):
    with pytest.raises(TraplessError, match="must be absolute"):
        guest_tree.add_file(Initramfs(), tmp_path, "", "relative")


def test_what_the_guest_hides_is_refused(tmp_path):
    """The guest mounts file systems of its own at /dev, /proc, /run and /sys."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        hidden = script(Path(folder, "program"), "#!/bin/sh\n")
        (tmp_path / "link").symlink_to(hidden)
        plans = (
            GuestPlan((str(hidden),)),
            GuestPlan(("true",), files=((hidden, "/run/program"),)),
            GuestPlan((str(tmp_path / "link"),), host_root=True),
            GuestPlan(("true",), host_root=True, cwd=Path(folder)),
        )
        for plan in plans:
            with pytest.raises(TraplessError, match="hidden in the guest, which has a /") as caught:
                guest_tree.build(plan, Silent())
            assert caught.value.status == 2


def test_device_is_not_copied():
    with pytest.raises(TraplessError, match="neither a file nor a folder"):
        guest_tree.add_file(Initramfs(), Path("/dev/null"), "", "/x")


def test_records_keep_order_and_odd_bytes(tmp_path):
    argv = ("prog", "", "a=b", "line\nbreak", "\udcff")
    plan = GuestPlan(argv, env=(("K", "v=1"),), cwd=tmp_path)
    records = read_records(guest_tree.records(plan, ["/m.ko x=1"], "/bin/prog"))
    assert tuple(value for key, value in records if key == "arg") == argv
    assert ("env", "K=v=1") in records
    assert ("module", "/m.ko x=1") in records
    assert ("exec", "/bin/prog") in records


@pytest.mark.parametrize("host_root", [False, True])
def test_libraries_are_found_in_the_guest_as_here(tmp_path, monkeypatch, host_root):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", "own::/opt/lib;/usr/own")
    plan = GuestPlan(("true",), host_root=host_root)
    expected = f"{tmp_path}/own:/opt/lib:/usr/own"
    assert guest_tree.environment(plan)["LD_LIBRARY_PATH"] == expected
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert "LD_LIBRARY_PATH" not in guest_tree.environment(plan)


def test_nul_byte_is_refused():
    with pytest.raises(TraplessError, match="NUL"):
        guest_tree.records(GuestPlan(("a", "b\0c")), [], None)


def test_host_root_keeps_cwd_and_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/some/where:/bin")
    plan = GuestPlan(("prog",), host_root=True, cwd=tmp_path)
    records = dict(read_records(guest_tree.records(plan, [], None)))
    assert records["cwd"] == str(tmp_path)
    assert records["root"] == "host"
    assert ("env", "PATH=/some/where:/bin") in read_records(guest_tree.records(plan, [], None))


def test_files_of_a_host_root_run_lie_in_its_layer(tmp_path):
    (tmp_path / "data").write_text("x")
    plan = GuestPlan(("x",), host_root=True, files=((tmp_path / "data", "/etc/data"),))
    tree = guest_tree.build(plan, Silent())
    assert "/trapless/files/etc/data" in tree
    assert "/bin/busybox" not in tree


def test_own_module_is_loaded_last_with_its_parameters(tmp_path):
    module = tmp_path / "trapless.ko"
    module.write_bytes(b"module")
    plan = GuestPlan(("true",), own_module=module, own_parameters="supervisor=1 other=2")
    assert guest_tree.add_modules(Initramfs(), plan) == [
        "/trapless/modules/trapless.ko supervisor=1 other=2"
    ]


@pytest.mark.parametrize(("flags", "record"), [(None, None), (0, "0"), (3, "3")])
def test_init_is_told_to_switch_the_command(flags, record):
    records = read_records(guest_tree.records(GuestPlan(("true",), supervisor=flags), [], None))
    assert dict(records).get("supervisor") == record
