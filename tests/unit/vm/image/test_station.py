# SPDX-License-Identifier: GPL-2.0-only
"""What runs on a machine that was booted from an image, without the machine: orders, the search for
the stick, consoles, and words.

Disks are files here, in a folder that stands for /sys and /dev.
"""

from __future__ import annotations

import os
import pty
import struct
import subprocess

import pytest

from trapless.image.station import boot_order, medium
from trapless.image.station.consoles import Consoles
from trapless.image.station.station import locked_down, slug

MARK = "0123ABCD"


class Machine:
    """Folders that stand for a machine's /sys and /dev."""

    def __init__(self, folder):
        self.sys, self.dev = folder / "sys", folder / "dev"
        (self.sys / "block").mkdir(parents=True)
        self.dev.mkdir()

    def disk(self, name, bus="usb1", mark=MARK):
        place = self.sys / "devices" / bus / "block" / name
        place.mkdir(parents=True)
        (self.sys / "block" / name).symlink_to(place)
        header = bytearray(40 * 1024)
        header[medium.HEADER_OFFSET + 1 : medium.HEADER_OFFSET + 6] = b"CD001"
        volume = medium.VOLUME.format(mark).encode().ljust(32)
        header[medium.HEADER_OFFSET + 40 : medium.HEADER_OFFSET + 72] = volume
        (self.dev / name).write_bytes(header)
        return place

    def partition(self, disk, name, mark=MARK, label=medium.LABEL):
        (disk / name).mkdir()
        (disk / name / "partition").write_text("4\n")
        sector = bytearray(512)
        struct.pack_into("<I", sector, medium.SERIAL_OFFSET, int(mark, 16))
        sector[medium.LABEL_OFFSET : medium.LABEL_OFFSET + 11] = label.encode().ljust(11)
        sector[510:] = b"\x55\xaa"
        (self.dev / name).write_bytes(sector)

    def find(self):
        return medium.find(MARK, self.sys, self.dev)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_the_stick_is_found_among_other_disks(machine):
    machine.partition(machine.disk("sda", mark="FFFFFFFF"), "sda4", mark="FFFFFFFF")
    stick = machine.disk("sdb")
    machine.partition(stick, "sdb2", label="EFI")
    machine.partition(stick, "sdb4")
    assert machine.find() == medium.Stick("sdb", "sdb4")


def test_a_partition_with_the_mark_on_another_disk_is_not_taken(machine):
    machine.partition(machine.disk("sda", mark="FFFFFFFF"), "sda1")
    machine.disk("sdb")
    assert machine.find() is None


@pytest.mark.parametrize("wrong", [{"mark": "00000001"}, {"label": "TRAPLES"}], ids=str)
def test_a_partition_without_mark_or_label_is_not_taken(machine, wrong):
    machine.partition(machine.disk("sda"), "sda4", **wrong)
    assert machine.find() is None


def test_a_disk_that_is_not_on_usb_is_not_even_read(machine):
    machine.partition(machine.disk("sda", bus="ata1"), "sda4")
    assert machine.find() is None


def test_a_stick_that_goes_while_it_is_looked_at_is_not_there(machine):
    machine.partition(machine.disk("sda"), "sda4")
    (machine.dev / "sda4").unlink()
    assert machine.find() is None


@pytest.fixture
def mounted(monkeypatch, tmp_path):
    """Saving into a folder instead of a partition."""
    monkeypatch.setattr(medium, "_mount", lambda stick, where, options: None)
    monkeypatch.setattr(medium, "_unmount", lambda where: None)
    where = tmp_path / "stick"
    where.mkdir()
    return where


def files(tmp_path, **contents):
    made = []
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
        made.append((f"{name}.tar.xz", tmp_path / name))
    return made


STICK = medium.Stick("sda", "sda4")


def test_nothing_on_the_stick_is_written_over(mounted, tmp_path):
    for wanted in ("one.tar.xz", "one-2.tar.xz", "one-3.tar.xz"):
        assert medium.save(STICK, files(tmp_path, one=wanted.encode()), mounted) == [wanted]
    assert (mounted / "one.tar.xz").read_bytes() == b"one.tar.xz"


def test_what_was_written_is_read_again(mounted, tmp_path, monkeypatch):
    made = files(tmp_path, one=b"data")
    monkeypatch.setattr(medium, "_copy", lambda source, target: target.write_bytes(b"dat4"))
    with pytest.raises(medium.SaveError, match=r"one\.tar\.xz differs: the stick is damaged"):
        medium.save(STICK, made, mounted)


@pytest.mark.parametrize(
    ("number", "words"), [(28, "the stick is full"), (5, "as if it were pulled")], ids=str
)
def test_a_failed_write_leaves_nothing_and_says_why(mounted, tmp_path, monkeypatch, number, words):
    made = files(tmp_path, one=b"1", two=b"2")

    def copy(source, target):
        target.write_bytes(b"")
        if source.name == "two":
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(medium, "_copy", copy)
    with pytest.raises(medium.SaveError, match=words):
        medium.save(STICK, made, mounted)
    assert list(mounted.iterdir()) == []


def test_an_order_is_read_and_complaints_are_kept():
    line = f"BOOT_IMAGE=/x quiet trapless.mark={MARK} trapless.medium=cd trapless.run=full"
    read = boot_order.parse(f"{line} trapless.supervisor=off trapless.then=now mitigations=off")
    assert (read.run, read.mark, read.medium, read.supervisor) == ("full", MARK, "cd", "off")
    assert (read.then, read.least) == ("ask", "off")
    assert boot_order.parse("trapless.least=on").least == "on"
    assert read.complaints == ("trapless.then=now: not one of ask, poweroff, restart",)


def test_a_locked_kernel_is_told_from_others(tmp_path):
    state = tmp_path / "lockdown"
    assert locked_down(state) == ""
    state.write_text("[none] integrity confidentiality\n")
    assert locked_down(state) == ""
    state.write_text("none [integrity] confidentiality\n")
    assert "Secure Boot" in locked_down(state)


def test_names_of_processors_become_names_of_files():
    assert slug("AMD EPYC 9R14 96-Core Processor") == "AMD-EPYC-9R14-96-Core-Processor"
    assert slug("") == "machine"


@pytest.fixture
def terminal():
    """Consoles on one pseudo-terminal, and its other end."""
    ours, theirs = pty.openpty()
    with Consoles([os.ttyname(theirs), "/dev/null"]) as consoles:
        yield consoles, ours
    os.close(ours)
    os.close(theirs)


def test_a_console_that_a_shell_had_for_itself_answers_again(terminal, monkeypatch):
    """The end of a shell hangs a console up, though not a pseudo-terminal: so it is done here."""
    consoles, ours = terminal

    def hung_up(argv, stdin, **_):
        master, slave = pty.openpty()
        os.close(master)
        os.dup2(slave, stdin)
        os.close(slave)

    os.write(ours, b"s")
    path = consoles.key(5)[1]
    monkeypatch.setattr(subprocess, "run", hung_up)
    consoles.on_one(path, ["sh"], {})
    os.write(ours, b"w")
    assert consoles.key(5) == ("w", path)
    consoles.say("again")
    assert b"again" in os.read(ours, 100)


def test_a_key_needs_no_enter_and_is_not_shown(terminal):
    consoles, ours = terminal
    os.write(ours, b"q")
    assert consoles.key(5)[0] == "q"
    assert consoles.key(0) is None
    consoles.say("shown")
    assert os.read(ours, 100) == b"shown\r\n"


def test_a_programs_output_is_shown_and_kept_without_what_drew_over(terminal):
    consoles, ours = terminal
    script = r"printf 'half\r\033[Kwhole\n'; exit 3"
    assert consoles.run(["sh", "-c", script], {}) == 3
    assert b"whole" in os.read(ours, 1000)
    assert consoles.shown() == b"whole\n"


def test_ctrl_c_interrupts_the_program(terminal):
    consoles, ours = terminal
    os.write(ours, b"\x03")
    assert consoles.run(["sleep", "60"], {}) == 130
