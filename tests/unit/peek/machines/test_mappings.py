# SPDX-License-Identifier: GPL-2.0-only
"""What a process that pretends to be a monitor may say of its mappings: nothing that is not there,
and nothing that takes for ever to look at.
"""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

import pytest

from tests import descriptors
from tests.unit.peek.machines.made_up_monitors import FORGER, forged, started
from trapless.peek import machines, mappings
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memory import FileMemory, Region

MIB = 1 << 20


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_bytes(b"secret".ljust(4 * MIB))
    return path


# ---- Forged mappings -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "end", ["\f", "\v", "\r", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
)
def test_a_files_name_makes_no_mapping(victim, end):
    name = forged(victim, 4 * MIB, end)
    with started("qemu-system-x86_64", FORGER, name, "x", "-m", "4M") as running:
        folder = Path(f"/proc/{running.pid}")
        assert str(victim) in (folder / "maps").read_text(), "the name is there"
        (real,) = (one for one in mappings.read(folder) if str(victim) in one.path)
        assert real.length == 4096 and real.path.startswith("/memfd:")
        with contextlib.suppress(PeekError):
            for way in machines.by_pid(running.pid).memories():
                for memory in way:
                    assert memory.read(0, 6) != b"secret"
                    memory.close()


def test_a_name_with_a_form_feed_is_no_fault():
    with (
        started("qemu-system-x86_64", FORGER, "a\fb", "x", "-m", "9G") as running,
        pytest.raises(PeekError, match="none of its mappings has the 9216 MiB"),
    ):
        machines.by_pid(running.pid).open()


def test_lines_of_another_form_are_skipped(tmp_path):
    good = "7f0000000000-7f0000001000 rw-p 00000000 00:00 0"
    bad = ("x", "1-2", "1-2 rw-p", "1-g rw-p 0 00:00 0", "-1-2 rw-p 0 00:00 0", "1-2 rw-s 0 0:0 ٣")
    (tmp_path / "maps").write_text("\n".join((*bad, good, f"{good}x", "")))
    assert [one.start for one in mappings.read(tmp_path)] == [0x7F0000000000]


def files_of(process: Path, one: mappings.Mapping) -> list[FileMemory]:
    way = [[Region(0, one.length, one.start)]]
    return mappings.memories(process, [one], "vm", way, mappings.held_files(process))


def test_a_file_is_handed_over_only_if_the_process_maps_it(victim):
    """Between two looks a file may be removed, and its inode become another user's."""
    device, inode = mappings.key_of(victim.stat())
    with started("qemu-system-x86_64", FORGER, "ram", "x") as running:
        folder, start = Path(f"/proc/{running.pid}"), 0x100000000
        one = mappings.Mapping(start, start + 4 * MIB, "rw-s", 0, device, inode, str(victim))
        with pytest.raises(PeekError, match="mappings have changed"):
            files_of(folder, one)
        assert not descriptors.of(rf"{victim}|/proc/{running.pid}/.*")
        (real,) = (one for one in mappings.read(folder) if one.path.startswith("/memfd:ram"))
        (memory,) = files_of(folder, real)
        assert os.readlink(f"/proc/self/fd/{memory.files[0].descriptor}").startswith("/memfd:ram")
        memory.close()


# ---- Bounds --------------------------------------------------------------------------------------

NODES = """
import mmap, os, sys
views = []
for number in range(16):
    memory = os.memfd_create("r")
    os.truncate(memory, 1 << 20)
    views.append(mmap.mmap(memory, 1 << 20))
    os.close(memory)  # mmap keeps a copy of its own
os.closerange(3, 200)
print("ready", flush=True)
sys.stdin.read()
"""


def test_the_open_files_of_a_process_are_looked_at_once(monkeypatch):
    """A process may have a hundred parts whose files it has closed, and any number of others."""
    parts = [
        f"-object memory-backend-memfd,id=m{at},size=1M -numa node,memdev=m{at}" for at in range(16)
    ]
    looks: list[str] = []
    for name in ("listdir", "scandir"):
        plain = getattr(os, name)
        monkeypatch.setattr(os, name, lambda path, of=plain: (looks.append(str(path)), of(path))[1])
    with started("qemu-system-x86_64", NODES, *" ".join(parts).split()) as running:
        ways = machines.by_pid(running.pid).memories()
        for way in ways:
            for memory in way:
                assert memory.size == 16 * MIB
                memory.close()
    assert looks.count(f"/proc/{running.pid}/fd") == 1


@pytest.mark.slow
def test_only_so_many_open_files_are_looked_at(tmp_path):
    (tmp_path / "fd").mkdir()
    for number in range(mappings.DESCRIPTORS_MAX + 100):
        (tmp_path / "fd" / str(number)).touch()
    assert len(mappings.held_files(tmp_path)) == mappings.DESCRIPTORS_MAX


def test_ram_in_thousands_of_mappings_is_refused():
    count = mappings.PARTS_MAX + 1
    found = [
        mappings.Mapping(at * 8192, at * 8192 + 4096, "rw-p", 0, "00:00", 0, "")
        for at in range(1, count + 1)
    ]
    way = [[Region(0, (count + 1) * 8192, 0)]]
    with pytest.raises(PeekError, match=r"its RAM is in more than \d+ mappings"):
        mappings.memories(Path("/proc/self"), found, "vm", way, {})
    (memory,) = mappings.memories(Path("/proc/self"), found[:-1], "vm", way, {})
    assert [one.start for one in memory.regions()] == [one.start for one in found[:-1]]
    memory.close()


def test_too_few_open_files_are_a_fault_in_words():
    before = map(int, os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    one = mappings.Mapping(4096, 8192, "rw-p", 0, "00:00", 0, "")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before) + 20, hard))
    try:
        with pytest.raises(PeekError, match=r"Too many open files: .*ulimit -n"):
            mappings.memories(Path("/proc/self"), [one], "vm", [[Region(0, 4096, 4096)]] * 200, {})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not descriptors.of(rf"/proc/{os.getpid()}/mem")


# ---- Names ---------------------------------------------------------------------------------------

RELATIVE = """
import mmap, os, sys
os.chdir(sys.argv[1])
views = [mmap.mmap(os.open(name, os.O_RDWR), 0) for name in "ba"]
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_relative_path_of_memory_is_the_processs_own(tmp_path):
    """Both parts are as long, and the first one to be mapped is the likelier first part."""
    options = []
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode().ljust(MIB))
        options += ["-object", f"memory-backend-file,id={name},size=1M,mem-path=./{name},share=on"]
        options += ["-numa", f"node,memdev={name}"]
    with started("qemu-system-x86_64", RELATIVE, tmp_path, *options) as running:
        ways = list(machines.by_pid(running.pid).memories())
    for memory in (memory for way in ways for memory in way):
        assert (memory.read(0, 1), memory.read(MIB, 1)) == (b"a", b"b")
        memory.close()
