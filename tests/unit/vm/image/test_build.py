# SPDX-License-Identifier: GPL-2.0-only
"""What `trapless image` refuses before it makes anything, and the parts of an image that need no
machine: the boot menu, the choice of drivers.
"""

from __future__ import annotations

import re
import shutil

import pytest
from click.testing import CliRunner

from trapless.base.console import Silent, TraplessError
from trapless.cli import cli
from trapless.image import build, disc, drivers, menu
from trapless.image.station import boot_order
from trapless.vm.initramfs import Initramfs


def make(out, kernel="no-such-kernel", words=""):
    return build.make(out, kernel, words, Silent())


@pytest.fixture(autouse=True)
def room(monkeypatch):
    """A machine with all tools, and room on its disk."""
    monkeypatch.setattr(disc, "absent", lambda: ([], []))
    usage = shutil.disk_usage("/")._replace(free=build.NEED_BYTES)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)


def test_an_image_that_is_there_is_kept(tmp_path):
    out = tmp_path / "x.iso"
    out.write_text("mine")
    with pytest.raises(TraplessError, match="is there already") as caught:
        make(out)
    assert caught.value.status == 2 and out.read_text() == "mine"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TraplessError, match=r"there is no folder .*nowhere for x\.iso"):
        make(tmp_path / "nowhere" / "x.iso")


def test_a_wrong_kernel_is_wrong_usage_and_leaves_nothing(tmp_path):
    with pytest.raises(TraplessError, match="unknown kernel 'no-such-kernel'; give one of") as got:
        make(tmp_path / "x.iso")
    assert got.value.status == 2 and list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said_first(tmp_path, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(TraplessError, match="is full or nearly so: an image takes 500 MB"):
        make(tmp_path / "x.iso")


def test_missing_tools_are_named_with_their_packages(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("trapless.base.tools.tool_path", lambda: str(tmp_path))
    monkeypatch.setattr(disc, "GRUB", tmp_path)
    with pytest.raises(TraplessError) as caught:
        disc.require_tools()
    said = str(caught.value)
    assert "needs grub-mkrescue, xorriso, mformat, mcopy, zstd, GRUB for i386-pc" in said
    packages = "grub-common grub-efi-amd64-bin grub-pc-bin mtools xorriso zstd"
    assert said.endswith(f"apt-get install {packages}")


def test_words_that_would_be_commands_of_the_boot_loader_are_refused(tmp_path):
    with pytest.raises(TraplessError, match="plain words"):
        make(tmp_path / "x.iso", words="quiet; reboot")


def test_a_disk_is_no_place_for_an_image():
    done = CliRunner().invoke(cli, ["image", "/"])
    assert done.exit_code == 2 and "is a directory" in done.output


def test_every_entry_of_the_menu_gives_an_order_that_is_understood():
    text = menu.text("0123ABCD", "6.x", 30_000_000, "trapless.then=poweroff")
    entries = re.findall(r"\{ start (\S+) \}", text)
    assert len(entries) == len(boot_order.RUNS)
    linux = re.search(r"^\tlinux (.*)$", text, re.M)[1]
    words = re.search(r'set words="(.*)"$', text, re.M)[1]
    for entry in entries:
        line = linux.replace("$words", words).replace("$1", entry)
        line = line.replace("$medium", "hd").replace("$supervisor", "off")
        read = boot_order.parse(line)
        assert (read.complaints, read.mark, read.then) == ((), "0123ABCD", "poweroff")
        assert read.run == entry


def test_words_of_the_menu_that_are_given_are_what_it_begins_with():
    text = menu.text("0", "6.x", 1, "trapless.run=full trapless.supervisor=off mitigations=off x=1")
    for line in ("default=full", "timeout=10", "supervisor=off", "mitigations=off"):
        assert f"\tset {line}\n" in text
    assert "--id=full" in text
    linux = re.search(r"^\tlinux (.*)$", text, re.M)[1]
    assert " x=1 $words" in linux and "off" not in linux and "full" not in linux
    text = menu.text("0", "6.x", 1, "")
    for line in ("timeout=-1", "supervisor=on", "mitigations=on"):
        assert f"\tset {line}\n" in text


def test_a_word_of_ours_with_a_wrong_value_is_wrong_usage(tmp_path):
    with pytest.raises(TraplessError, match=r"run=now: not one of ask, quick, full, esti") as got:
        make(tmp_path / "x.iso", words="trapless.run=now")
    assert got.value.status == 2


def test_keys_of_the_menu_are_none_that_the_boot_loader_takes():
    keys = re.findall(r'menuentry "(\w)  .*--hotkey=(\w)', menu.TEMPLATE)
    assert len(keys) == menu.TEMPLATE.count("menuentry") == len(set(keys))
    assert all(shown == key and key not in "cev" for shown, key in keys)


def test_modules_at_hand_come_decompressed_with_their_needs(tmp_path):
    modules = tmp_path / "6.x"
    (modules / "kernel").mkdir(parents=True)
    (modules / "kernel/brd.ko").write_bytes(b"brd")
    (modules / "kernel/ext4.ko").write_bytes(b"ext4")
    (modules / "kernel/jbd2.ko").write_bytes(b"jbd2")
    (modules / "kernel/nvme.ko").write_bytes(b"nvme")
    rows = ("brd.ko:", "ext4.ko: kernel/jbd2.ko", "jbd2.ko:", "nvme.ko:")
    (modules / "modules.dep").write_text("".join(f"kernel/{row}\n" for row in rows))
    (modules / "modules.builtin").write_text("kernel/null_blk.ko\n")
    tree = Initramfs()
    drivers.add_at_hand(tree, modules)
    for name in ("brd", "ext4", "jbd2"):
        assert f"/lib/modules/6.x/kernel/{name}.ko" in tree
    assert "/lib/modules/6.x/kernel/nvme.ko" not in tree
    listing = tree._entries["usr/lib/modules/6.x/modules.dep"].content.decode()
    assert "kernel/ext4.ko: kernel/jbd2.ko\n" in listing and "nvme" not in listing


def test_no_driver_of_the_machines_disks_is_among_the_modules():
    disks = ("nvme", "ahci", "ata", "virtio", "mpt", "megaraid", "mmc")
    for name in (*drivers.BOOT, *drivers.AT_HAND):
        assert not name.startswith(disks), name
