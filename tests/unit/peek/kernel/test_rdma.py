# SPDX-License-Identifier: GPL-2.0-only
"""What the sampler says of a machine that is read by RDMA, and what is refused before any network.

tests/lab/peek/remote reads a real machine. These tests need neither a device nor rdma-core.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trapless.base.paths import repo_root
from trapless.peek import machines
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memories.rdma_memory import Reader, by_rdma
from trapless.peek.kernel.memory import Region


@pytest.fixture
def reader() -> Reader:
    """One whose program has not been started."""
    made = Reader.__new__(Reader)
    made.host, made.note, made.regions = "web", 0, []
    return made


def test_regions_that_continue_each_other_are_one(reader):
    reader.greeted(
        b"note 0x35020000\nregion 0x1000 0x9e000\nregion 0x100000 0x100000\n"
        b"region 0x200000 0x3fc00000\n"
    )
    assert reader.note == 0x35020000
    assert reader.regions == [
        Region(0x1000, 0x9E000, 0x1000),
        Region(0x100000, 0x3FD00000, 0x100000),
    ]


@pytest.mark.parametrize("line", ["note", "region -1 0x10", "region 0x1" + 16 * "0" + " 0x10", "x"])
def test_lines_of_another_form_are_errors(reader, line):
    with pytest.raises(PeekError, match="the sampler says of web"):
        reader.greeted(line.encode())


def test_keys_that_others_may_read_and_files_that_are_no_keys_are_refused(tmp_path):
    key = tmp_path / "key"
    for text, mode, words in (
        (64 * "a", 0o644, "others may read it; chmod 600 it"),
        (63 * "a", 0o600, "is no key"),
        (65 * "a", 0o600, "is no key"),
        (63 * "a" + "g", 0o600, "is no key"),
    ):
        key.write_text(text)
        key.chmod(mode)
        with pytest.raises(PeekError, match=f"{words}|built without rdma-core's headers"):
            by_rdma("127.0.0.1", 18515, key)


def test_a_machine_needs_its_key_and_a_host():
    for text, key in (
        ("web", None),
        ("web:x", Path("key")),
        ("a,b", Path("key")),
        ("", Path("key")),
    ):
        with pytest.raises(machines.ChoiceError) as error:
            machines.choose(rdma=text, key=key)
        assert error.value.status == 2


def test_the_port_is_that_of_the_header():
    header = (repo_root() / "include/uapi/linux/trapless_rdma.h").read_text()
    assert f"#define TLR_PORT\t{machines.RDMA_PORT}" in header


def test_without_a_device_the_message_says_so(tmp_path):
    if Path("/sys/class/infiniband").exists() or shutil.which("rdma") is None:
        pytest.skip("needs a machine without a device")
    key = tmp_path / "key"
    key.write_text(64 * "a")
    key.chmod(0o600)
    with pytest.raises(PeekError, match=r"no RDMA device|rdma-core"):
        by_rdma("127.0.0.1", 18515, key)
