# SPDX-License-Identifier: GPL-2.0-only
"""Order and decompression of a kernel's own modules, on folders as depmod leaves them."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from trapless.base.console import TraplessError
from trapless.vm import guest_modules


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    (tmp_path / "modules.dep").write_text(
        "kernel/a.ko:\n"
        "kernel/b-b.ko.xz: kernel/a.ko\n"
        "kernel/c.ko.gz: kernel/b-b.ko.xz kernel/a.ko\n"
    )
    (tmp_path / "modules.builtin").write_text("kernel/fs/overlayfs/over-lay.ko\n")
    folder = tmp_path / "kernel"
    folder.mkdir()
    (folder / "a.ko").write_bytes(b"plain")
    (folder / "b-b.ko.xz").write_bytes(lzma.compress(b"xz"))
    (folder / "c.ko.gz").write_bytes(gzip.compress(b"gz"))
    return tmp_path


def loaded(folder: Path, *wanted: str) -> list[str]:
    return [path.name for path in guest_modules.load_order(folder, wanted)]


def test_dependencies_come_first(modules):
    assert loaded(modules, "c") == ["a.ko", "b-b.ko.xz", "c.ko.gz"]


def test_nothing_is_loaded_twice(modules):
    assert loaded(modules, "b_b", "c", "a") == ["a.ko", "b-b.ko.xz", "c.ko.gz"]


def test_dash_and_underscore_are_one(modules):
    assert loaded(modules, "b-b") == loaded(modules, "b_b")


def test_builtin_is_left_out(modules):
    assert loaded(modules, "over_lay", "a") == ["a.ko"]


def test_modules_that_are_asked_for_by_name_come_too(modules, monkeypatch):
    monkeypatch.setattr(guest_modules, "ASKED_BY_NAME", {"b_b": ("c", "over_lay", "gone")})
    assert loaded(modules, "b-b") == ["a.ko", "b-b.ko.xz", "c.ko.gz"]


def test_kernel_without_modules_has_all_built_in():
    assert guest_modules.load_order(None, ["anything"]) == []


def test_unknown_module_is_named(modules):
    with pytest.raises(TraplessError, match="no module zebra"):
        loaded(modules, "zebra")


def test_folder_without_index_is_damaged(tmp_path):
    with pytest.raises(TraplessError, match="not as depmod leaves it"):
        loaded(tmp_path, "a")


def test_compressed_modules_are_read(modules):
    read = [guest_modules.read_module(path) for path in guest_modules.load_order(modules, ["c"])]
    assert read == [b"plain", b"xz", b"gz"]


@pytest.mark.parametrize("name", ["9pnet-virtio.ko", "x/9pnet_virtio.ko.xz", "9pnet_virtio.ko.zst"])
def test_module_name(name):
    assert guest_modules.module_name(name) == "9pnet_virtio"
