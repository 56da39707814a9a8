# SPDX-License-Identifier: GPL-2.0-only
"""Which machine is looked into, and how its RAM is found in the process that runs it.

The process is a made-up one: it maps a toy kernel in each way in which monitors map their RAM, and
nothing runs in it.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.unit.peek.machines.made_up_monitors import started
from tests.unit.peek.toy_kernel import RAM_BYTES, RELEASE, ToyKernel
from trapless.peek import machines, mappings, qemu_arguments
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memories.images import open_memory
from trapless.peek.kernel.memories.process_memory import denial
from trapless.peek.kernel.memory import GIB, PC_HOLE, Q35_HOLE
from trapless.peek.kernel.target import Target
from trapless.peek.sampling import record
from trapless.peek.sampling.sample_rows import Ending
from trapless.peek.sampling.sampler import Sampler
from trapless.peek.sampling.sampling_plan import Field, Group, Plan, Rule

FILE = "memory-backend-file,id=ram,mem-path=/dev/shm/vm,size=1G,share=on"
MIB = 1 << 20

# ---- QEMU's command line -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (f"-object {FILE} -machine q35,memory-backend=ram", "/dev/shm/vm"),
        (f"-machine q35 -M memory-backend=ram --object {FILE}", "/dev/shm/vm"),
        (f"-object {FILE} -numa node,memdev=ram", "/dev/shm/vm"),
        (f"-object {FILE},prealloc=on -machine memory-backend=ram,type=pc", "/dev/shm/vm"),
        (f"-object {FILE.replace('/vm', '/a,,b')} -machine memory-backend=ram", "/dev/shm/a,b"),
        (f"-object {FILE} -device ivshmem-plain,memdev=ram", None),  # a channel, not RAM
        (f"-object {FILE.replace('=on', '=off')} -machine memory-backend=ram", None),
        ("-object memory-backend-ram,id=ram,share=on -machine memory-backend=ram", None),
        (f"-object {FILE} -numa node,memdev=ram -numa node,memdev=more", None),
        ("-m 1G -machine q35", None),
        ("-object {broken -machine memory-backend=ram", None),
        ("-object", None),
    ],
)
def test_shared_ram_is_found_on_qemus_command_line(arguments, path):
    assert qemu_arguments.ram_file(["qemu-system-x86_64", *arguments.split()]) == path


def test_objects_in_json_are_understood():
    backend = {"qom-type": "memory-backend-file", "id": "pc.ram", "mem-path": "/m", "share": True}
    argv = ["qemu", "-object", json.dumps(backend), "-machine", "pc,memory-backend=pc.ram"]
    assert qemu_arguments.ram_file(argv) == "/m"


@pytest.mark.parametrize(
    ("arguments", "sizes"),
    [
        ("", [128]),
        ("-m 6G", [6144]),
        ("-m 512", [512]),
        ("-m size=4194304k,slots=2,maxmem=8G", [4096]),
        ("-m 1G -object memory-backend-memfd,id=r,size=1073741824 -M pc,memory-backend=r", [1024]),
        (
            "-m 3G -object memory-backend-ram,id=a,size=1G -object memory-backend-ram,id=b,size=2G "
            "-numa node,nodeid=1,memdev=a -numa node,nodeid=0,memdev=b",
            [2048, 1024],
        ),
        ("-m 2G -numa node,mem=1G -numa node,mem=1G", [2048]),
    ],
)
def test_parts_of_ram_are_in_the_order_of_nodes(arguments, sizes):
    parts = qemu_arguments.ram(["qemu", *arguments.split()])
    assert [part.size // MIB for part in parts] == sizes


def test_encrypted_memory_is_refused_by_its_name():
    with pytest.raises(PeekError, match=r"encrypted .sev-guest."):
        qemu_arguments.ram(["qemu", "-object", "sev-guest,id=sev0,cbitpos=47"])


@pytest.mark.parametrize(
    ("machine", "total", "holes"),
    [
        ("q35", 6 * GIB, [Q35_HOLE]),
        ("pc-q35-7.2,accel=kvm", 6 * GIB, [Q35_HOLE]),
        ("type=q35", 2 * GIB, []),
        ("pc", 6 * GIB, []),  # the likeliest anyway
        ("pc,max-ram-below-4g=1G", 6 * GIB, [GIB]),
        ("q35,max-ram-below-4g=3G", 6 * GIB, [Q35_HOLE, Q35_HOLE]),
    ],
)
def test_a_machines_type_tells_where_low_memory_ends(machine, total, holes):
    assert qemu_arguments.holes(["qemu", "-machine", machine], total) == holes


# ---- Which machine -------------------------------------------------------------------------------


def process(proc: Path, pid: int, *argv: str) -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "cmdline").write_bytes("\0".join([*argv, ""]).encode())


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    ram = tmp_path / "ram"
    ram.write_bytes(bytes(4096))
    shared = ("-object", FILE.replace("/dev/shm/vm", str(ram)), "-machine", "memory-backend=ram")
    folder = tmp_path / "proc"
    name = ("-name", "guest=mine,debug-threads=on")
    process(folder, 30, "/usr/bin/qemu-system-x86_64", *name, *shared)
    process(folder, 4, "qemu-system-x86_64", "-m", "1G", "-name", "twin")
    process(folder, 5, "vi", *shared)
    process(folder, 6, "firecracker", "--id", "small")
    process(folder, 7, "")
    (folder / "7/stat").write_text("7 (a) kthread) S 2 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0\n")
    process(folder, 8, "qemu-system-aarch64", "-m", "1G")
    process(folder, 9, "qemu-kvm", "-name", "twin")
    process(folder, 31, "qemu-system-riscv64", "-m", "1G")
    return folder


def test_running_machines_are_found(proc):
    found = machines.running(proc)
    assert [(one.pid, one.kind, one.name) for one in found] == [
        (4, "qemu", "twin"),
        (6, "firecracker", "small"),
        (8, "qemu", ""),
        (9, "qemu", "twin"),
        (30, "qemu", "mine"),
    ]
    assert [one.shared for one in found] == [None, None, None, None, proc.parent / "ram"]


def test_a_machine_is_chosen_by_its_name_or_pid(proc):
    assert machines.by_name("mine", proc).pid == 30
    assert machines.by_pid(6, proc).name == "small"
    for name, said in (
        ("twin", "2 machines are called twin; choose one with --pid: 4, 9"),
        (
            "nobody",
            r"no virtual machine .* called nobody; 5 virtual .*\n  process 4 \(twin\): qemu",
        ),
    ):
        with pytest.raises(PeekError, match=said):
            machines.by_name(name, proc)
    for pid, said in (
        (5, r"process 5 \(vi\) runs no virtual machine .*qemu-system-aarch64, firecracker"),
        (7, "a kernel thread"),
        (31, "process 31 is qemu-system-riscv64: only x86-64 and arm64"),
        (77, "there is no process 77"),
    ):
        with pytest.raises(PeekError, match=said):
            machines.by_pid(pid, proc)


def test_a_process_that_ends_is_no_kernel_thread(proc):
    process(proc, 10, "")
    (proc / "10/stat").write_text("10 (qemu) R 1 0 0 0 -1 4194564 0 0 0 0 0 0 0 0 20 0 1 0\n")
    with pytest.raises(machines.ChoiceError, match="process 10 is ending or has ended"):
        machines.by_pid(10, proc)
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(machines.ChoiceError, match=f"process {ended.pid} is ending or has"):
            machines.by_pid(ended.pid)
    process(proc, 11, "")
    (proc / "11/stat").write_text("11 (x) S 1 0 0 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0\n")
    with pytest.raises(PeekError, match=r"process 11 .a program without a name. runs no virtual"):
        machines.by_pid(11, proc)


def test_names_forge_no_lines_of_the_list(proc):
    forged = "x\n  process 1 (web): qemu\x1b[2J"
    process(proc, 12, "qemu-kvm", "-name", forged)
    process(proc, 13, "qemu-kvm", "-name", forged)
    process(proc, 14, f"/bin/{forged}")
    for look in (
        lambda: machines.by_name("nobody", proc),
        lambda: machines.by_name(forged, proc),
        lambda: machines.by_name("no\x1bbody", proc),
        lambda: machines.by_pid(14, proc),
    ):
        with pytest.raises(PeekError) as raised:
            look()
        assert "process 1 (web): qemu\n" not in str(raised.value) and "\x1b" not in str(
            raised.value
        )
    with pytest.raises(PeekError, match=r"its memory x\\n  process 1 .*\\x1b"):
        qemu_arguments.ram(["qemu", "-M", f"memory-backend={forged}"])
    parts = qemu_arguments.ram(
        [
            "qemu",
            "-object",
            f"memory-backend-ram,id={forged},size=1M",
            "-M",
            f"memory-backend={forged}",
        ]
    )
    assert "\n" not in parts[0].name
    assert str(machines.by_pid(12, proc)) == r"process 12 (x\n  process 1 (web): qemu\x1b[2J)"


def test_machines_of_others_are_not_offered_to_who_may_not_read_them(proc, monkeypatch):
    foreign = machines.running(proc)[:3]
    other = os.geteuid() + 1000
    monkeypatch.setattr(os, "geteuid", lambda: other)
    monkeypatch.setattr(machines, "running", lambda *_: foreign)
    with pytest.raises(PeekError, match=r"^this user runs no virtual .* takes root"):
        machines.the_one()
    with pytest.raises(PeekError, match=r"called web; this user runs no virtual machine"):
        machines.by_name("web", proc)
    with pytest.raises(PeekError, match=r"called we\* \(only `peek why --all` .* take patterns\)"):
        machines.by_name("we*", proc)
    sharing = machines.machine_of(proc / "30")
    monkeypatch.setattr(machines, "running", lambda *_: [*foreign, sharing])
    with pytest.raises(PeekError, match=r"; 1 virtual .*:\n  process 30 .mine"):
        machines.by_name("web", proc)


def test_ram_by_descriptor_is_opened_as_the_process_has_it(tmp_path):
    argv = ["-object", FILE.replace("/dev/shm/vm", "/dev/fd/9"), "-machine", "memory-backend=ram"]
    process(tmp_path, 8, "qemu-system-x86_64", *argv)
    (tmp_path / "8/fd").mkdir()
    (tmp_path / "8/fd/9").write_bytes(b"ram")
    (found,) = machines.running(tmp_path)
    assert found.shared == tmp_path / "8/fd/9"


def test_without_a_choice_the_message_says_what_to_do(proc, monkeypatch):
    all_of_them = machines.running(proc)
    (shared,) = (one for one in all_of_them if one.shared)
    process(proc, 32, *shared.argv)
    monkeypatch.setattr(machines, "running", lambda: all_of_them)
    notes = []
    assert machines.the_one(note=notes.append) == machines.Image(shared.shared)
    (note,) = notes
    assert note.startswith(f"this is {shared}: of {len(all_of_them)} virtual machines on this host")
    assert "it alone shares its RAM in a file" in note and "--pid or --vm" in note
    monkeypatch.setattr(machines, "running", lambda: all_of_them[:1])
    assert machines.the_one(note=notes.append) == all_of_them[0] and len(notes) == 1
    monkeypatch.setattr(machines, "running", lambda: all_of_them[:2])
    with pytest.raises(machines.ChoiceError, match=r"--pid, --vm or --ram; 2 virtual machines "):
        machines.the_one()
    sharing = machines.machine_of(proc / "32")  # of those that share their RAM it lists all, too
    monkeypatch.setattr(machines, "running", lambda: [*all_of_them, sharing])
    with pytest.raises(machines.ChoiceError, match=r"; 6 virtual machines .*\n.*process 4 "):
        machines.the_one()
    monkeypatch.setattr(machines, "running", list)
    with pytest.raises(PeekError, match="no virtual machine runs on this host; start one"):
        machines.the_one()


def test_options_that_contradict_each_other_are_refused(tmp_path):
    from click.testing import CliRunner

    from trapless.cli import cli

    for words, said in (
        (["--ram", "x", "--pid", "1"], "--ram and --pid each name a machine"),
        (["--pid", "1", "--hole", "1G"], "--hole is for the file of --ram"),
        (["--pid", "web"], "'web' is no process ID; --vm takes a machine's name"),
    ):
        done = CliRunner().invoke(cli, ["peek", "shell", *words])
        assert said in done.output + str(done.exception)


@pytest.mark.parametrize(
    "words", ["dmesg --follow", "why --monitor nowhere", "stacks --monitor nowhere"]
)
def test_a_dump_takes_no_option_of_a_machine_that_runs(tmp_path, own_cache, words):
    from click.testing import CliRunner

    from trapless.cli import cli

    dump = tmp_path / "dump.gz"
    dump.write_bytes(gzip.compress(ToyKernel().save(tmp_path).read_bytes(), 1))
    done = CliRunner().invoke(cli, ["peek", *words.split(), str(dump)])
    option = words.split()[1]
    assert done.exit_code == 2
    assert f"{option} is for a machine that runs, and {dump} is a dump" in done.output


def test_log_of_a_file_that_no_machine_has_is_not_followed(tmp_path, own_cache):
    from click.testing import CliRunner

    from trapless.cli import cli

    ram = ToyKernel().save(tmp_path)
    done = CliRunner().invoke(cli, ["peek", "dmesg", "--follow", str(ram)])
    assert done.exit_code == 2
    assert f"none that this user may see has {ram} as its memory" in done.output


# ---- RAM in a process ----------------------------------------------------------------------------

CHILD = textwrap.dedent(
    """
    import ctypes, mmap, os, sys
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
    ram = open(sys.argv[1], "rb").read()
    PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000
    kept = []
    def mapped(length, parts, descriptor=-1, flags=PRIVATE):
        guard = 4096 if descriptor < 0 else 0                   # as QEMU has it behind RAM
        view = mmap.mmap(descriptor, length + guard, flags=flags)
        if guard:
            start = ctypes.addressof(ctypes.c_char.from_buffer(view))
            protect(start + length, guard, 0)
        for at, first, last in parts:
            for block in range(first, last, 65536):
                data = ram[block:min(block + 65536, last)]
                if data.count(0) != len(data):
                    view[at + block - first:at + block - first + len(data)] = data
        kept.append(view)
    M, whole = 1 << 20, len(ram)
    mapped(whole, [(0, 0, whole)])                              # a plain QEMU's
    mapped(5 * M, [(0, 3 * M, whole)])                          # two nodes
    mapped(3 * M, [(0, 0, 3 * M)])
    kept.append(os.memfd_create("memory-backend-memfd"))        # libvirt's
    os.truncate(kept[-1], whole + M)
    mapped(whole + M, [(0, 0, whole)], kept[-1], mmap.MAP_SHARED)
    mapped(36 * M, [])                                          # which has no kernel
    print("ready", flush=True)
    sys.stdin.read()
    """
)


@pytest.fixture(scope="module")
def monitor(toy: Path) -> Iterator[subprocess.Popen[str]]:
    with started("qemu-system-x86_64", CHILD, toy) as running:
        yield running


def opened(running: subprocess.Popen[str], *argv: str) -> Target:
    return machines.Process(Path(f"/proc/{running.pid}"), "qemu", ("", *argv)).open()


NODES = (
    "-object memory-backend-ram,id=a,size=3M -object memory-backend-ram,id=b,size=5M "
    "-numa node,memdev=a -numa node,memdev=b"
)
MEMFD = "-object memory-backend-memfd,id=r,size=9M -machine memory-backend=r"


@pytest.mark.parametrize(
    ("arguments", "regions"),
    [
        ("-m 8M", [(0, 8 * MIB, 0)]),
        (NODES, [(0, 3 * MIB, 0), (3 * MIB, 5 * MIB, 0)]),
        (MEMFD, [(0, 9 * MIB, 0)]),
    ],
)
def test_ram_is_found_in_a_process(own_cache, monitor, toy, arguments, regions):
    with opened(monitor, *arguments.split()) as target, open_memory(toy)[0] as file:
        assert target.release.says(RELEASE)
        found = [(one.start, one.length) for one in target.memory.regions()]
        assert found == [(start, length) for start, length, _ in regions]
        for at in range(0, RAM_BYTES, 256 << 10):
            assert target.memory.read(at, 4096) == file.read(at, 4096)


def test_what_a_process_has_not_says_so(own_cache, monitor):
    with pytest.raises(PeekError, match="qemu: none of its mappings has the 9216 MiB of its RAM"):
        opened(monitor, "-m", "9G")
    with pytest.raises(PeekError, match=r"no kernel in process \d+ .* it has no VMCOREINFO"):
        opened(monitor, "-m", "36M")
    with pytest.raises(PeekError, match=rf"has no end: --pid {monitor.pid} reads"):
        open_memory(Path(f"/proc/{monitor.pid}/mem"))


def test_the_sampler_reads_a_process_until_it_ends(own_cache, toy):
    with (
        started("qemu-system-x86_64", CHILD, toy) as running,
        opened(running, "-m", "8M") as target,
    ):
        at = target.physical(target.symbol("jiffies_64"))
        group = Group("all", Rule.STABLE, (Field("jiffies", 8, at), Field("small", 2, at)))
        with Sampler(record.source_of(target), Plan(1_000_000, (group,))) as run:
            batches = run.batches()
            first = next(batches)
            running.kill()
            rows = np.concatenate([first, *batches])
        assert set(rows["all.jiffies"].tolist()) == {4711} and not rows["absent"].any()
        assert run.end is not None and run.end.ending is Ending.SOURCE
        with pytest.raises(PeekError, match="gone"):
            target.memory.read(0, 8)


def maps(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def test_mappings_that_the_kernel_joined_or_split_are_understood(tmp_path):
    """QEMU's allocations in front of its RAM become one mapping with it; attributes split it."""
    start, ram = 0x7F0000200000, 64 * MIB
    (tmp_path / "maps").write_text(
        maps(
            f"{start - 0x3000:x}-{start + MIB:x} rw-p 00000000 00:00 0",
            f"{start + MIB:x}-{start + ram:x} rw-p 00000000 00:00 0 ",
            f"{start + ram:x}-{start + ram + 4096:x} ---p 00000000 00:00 0",
            "7fff00000000-7fff00021000 rw-p 00000000 00:00 0                          [stack]",
        )
    )
    found = mappings.read(tmp_path)
    assert [one.length for one in found] == [ram + 0x3000, 0x21000]
    (ways,) = mappings.qemu_ways(found, [qemu_arguments.Backend("ram", ram)], [])
    assert [[(one.start, one.length, one.offset) for one in way] for way in ways] == [
        [(0, ram, start)]
    ]


def test_nodes_of_one_size_are_tried_in_both_orders(tmp_path):
    (tmp_path / "maps").write_text(
        maps(
            "7f0000000000-7f0040000000 rw-s 00000000 00:01 5    /memfd:a (deleted)",
            "7f0080000000-7f00c0000000 rw-p 00000000 00:00 0",
        )
    )
    backends = [qemu_arguments.Backend(name, GIB) for name in "ab"]
    (ways,) = mappings.qemu_ways(mappings.read(tmp_path), backends, [])
    assert [[hex(one.offset) for one in way] for way in ways] == [
        ["0x7f0080000000", "0x7f0000000000"],
        ["0x7f0000000000", "0x7f0080000000"],
    ]


@pytest.mark.parametrize("kind", mappings.LAYOUTS)
def test_layouts_of_other_monitors_begin_again_at_4_gib(tmp_path, kind):
    layout = mappings.LAYOUTS[kind]
    hole, rest = layout.holes[0], GIB
    joined = f"7e0000000000-{0x7E0000000000 + hole + rest:x} rw-p 00000000 00:00 0  {layout.name}"
    (tmp_path / "maps").write_text(maps(joined))
    first = next(mappings.other_ways(mappings.read(tmp_path), layout))
    low, high = first[0]
    assert (low.start, low.length, high.start, high.length) == (0, hole, 4 * GIB, rest)
    assert low.offset == high.offset + rest, "the second of two mappings is put below the first"


def test_which_holes_qemu_makes_is_tried_from_the_likeliest_on(tmp_path):
    (tmp_path / "maps").write_text(maps("7f0000000000-7f0180000000 rw-p 00000000 00:00 0"))
    backend = qemu_arguments.Backend("ram", 6 * GIB)
    (ways,) = mappings.qemu_ways(mappings.read(tmp_path), [backend], [Q35_HOLE])
    assert [way[0].length for way in ways] == [Q35_HOLE, PC_HOLE, 6 * GIB]


# ---- Rights --------------------------------------------------------------------------------------


def test_what_right_is_missing_is_said_in_words(tmp_path, monkeypatch):
    (tmp_path / "12").mkdir()
    scope, own = tmp_path / "scope", os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1000)
    assert "process 12 may not be read: it runs as" in denial(tmp_path / "12", scope)
    assert "look as that user, or as root" in denial(tmp_path / "12", scope)
    os.chown(tmp_path / "12", own + 1000, -1) if own == 0 else monkeypatch.undo()
    scope.write_text("1\n")
    assert "ptrace_scope is 1, which leaves it to root" in denial(tmp_path / "12", scope)
    scope.write_text("3\n")
    assert "forbids it to all" in denial(tmp_path / "12", scope)
    scope.write_text("0\n")
    assert "CAP_SYS_PTRACE" in denial(tmp_path / "12", scope)
    assert "it has ended" in denial(tmp_path / "13", scope)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user has no capability to give up")
def test_rights_are_given_up(tmp_path):
    code = (
        "from trapless.peek import rights; rights.drop(); print(open('/proc/self/status').read())"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[4],
    )
    status = dict(line.split(":\t", 1) for line in done.stdout.splitlines() if ":\t" in line)
    kept = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 23
    for key in ("CapEff", "CapPrm", "CapBnd"):
        assert int(status[key], 16) & ~kept == 0, key
    assert status["NoNewPrivs"] == "1"
