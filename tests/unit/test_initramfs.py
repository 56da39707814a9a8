# SPDX-License-Identifier: GPL-2.0-only
"""The initramfs writer, read back by an independent implementation (busybox's cpio)."""

from __future__ import annotations

import io
import os
import stat
import subprocess
from pathlib import Path

import pytest

from trapless.vm.initramfs import FILE_BYTES_MAX, NAME_BYTES_MAX, Entry, Initramfs, Packed


def unpacked(tree: Initramfs, folder: Path) -> Path:
    """Write `tree` and unpack it below `folder`."""
    archive = folder / "archive.cpio"
    with archive.open("wb") as file:
        tree.write(file)
    root = folder / "root"
    root.mkdir()
    with archive.open("rb") as file:
        subprocess.run(
            ["busybox", "cpio", "-idm", "--quiet"], stdin=file, cwd=root, check=True, timeout=600
        )
    return root


def test_bytes_and_modes_survive(tmp_path):
    tree = Initramfs()
    content = bytes(range(256)) * 5 + b"x"  # not a multiple of four: padding is needed
    tree.file("/etc/one", content, 0o640)
    tree.file("/empty", b"")
    root = unpacked(tree, tmp_path)
    assert (root / "etc/one").read_bytes() == content
    assert stat.S_IMODE((root / "etc/one").stat().st_mode) == 0o640
    assert (root / "empty").read_bytes() == b""


@pytest.mark.parametrize("length", range(1, 10))
def test_every_length_of_name_is_padded_right(tmp_path, length):
    tree = Initramfs()
    tree.file("/" + "n" * length, b"a" * length)
    tree.file("/zz", b"after")
    root = unpacked(tree, tmp_path)
    assert (root / ("n" * length)).read_bytes() == b"a" * length
    assert (root / "zz").read_bytes() == b"after"


def test_host_file_is_copied_when_written(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(os.urandom((1 << 20) + 3))
    tree = Initramfs()
    tree.file("/copy", source)
    assert tree.size() >= source.stat().st_size
    assert (unpacked(tree, tmp_path) / "copy").read_bytes() == source.read_bytes()


def test_parents_appear_and_come_first(tmp_path):
    tree = Initramfs()
    tree.file("/a/b/c/d", b"deep")
    tree.file("/a-b", b"sorts between /a and /a/b as text")
    assert (unpacked(tree, tmp_path) / "a/b/c/d").read_bytes() == b"deep"


def test_library_folders_are_merged_into_usr(tmp_path):
    tree = Initramfs()
    tree.file("/lib64/loader.so", b"loader")
    tree.file("/bin/tool", b"tool", 0o755)
    root = unpacked(tree, tmp_path)
    assert os.readlink(root / "lib64") == "usr/lib64"
    assert (root / "usr/lib64/loader.so").read_bytes() == b"loader"
    assert (root / "bin/tool").read_bytes() == b"tool"
    assert "/usr/bin/tool" in tree
    assert "/bin/tool" in tree
    assert "/bin/other" not in tree


def test_last_of_two_files_at_a_path_wins(tmp_path):
    tree = Initramfs()
    tree.symlink("/bin/ls", "/bin/busybox")
    tree.file("/usr/bin/ls", b"real", 0o755)
    root = unpacked(tree, tmp_path)
    assert not (root / "usr/bin/ls").is_symlink()
    assert (root / "bin/ls").read_bytes() == b"real"


def test_symlink_target_is_kept(tmp_path):
    tree = Initramfs()
    tree.symlink("/link", "/no/such/path")
    assert os.readlink(unpacked(tree, tmp_path) / "link") == "/no/such/path"


@pytest.mark.parametrize("path", ["/a/../b", "../x"])
def test_path_with_dots_is_refused(path):
    with pytest.raises(ValueError, match=r"'\.\.'"):
        Initramfs().file(path, b"")


def test_bounds_of_format_are_refused(tmp_path):
    with pytest.raises(ValueError, match="path of more than"):
        Initramfs().file("/" + "d/" * NAME_BYTES_MAX, b"")
    huge = tmp_path / "huge"
    huge.touch()
    os.truncate(huge, FILE_BYTES_MAX + 1)
    with pytest.raises(ValueError, match="4 GiB"):
        Initramfs().file("/huge", huge)


def test_same_tree_gives_same_bytes(tmp_path):
    archives = []
    for order in (("/b", "/a"), ("/a", "/b")):
        tree = Initramfs()
        for path in order:
            tree.file(path, path.encode())
        archive = tmp_path / order[0].strip("/")
        with archive.open("wb") as file:
            tree.write(file)
        archives.append(archive.read_bytes())
    assert archives[0] == archives[1]


def test_entry_knows_its_size():
    assert Entry(0, content=b"12345").size() == 5


def test_packed_tree_is_written_as_it_came():
    tree = Initramfs()
    tree.file("/etc/one", b"content")
    first, again = io.BytesIO(), io.BytesIO()
    tree.write(first)
    packed = Packed(first.getvalue())
    packed.write(again)
    assert again.getvalue() == first.getvalue() and packed.size() == len(first.getvalue())
