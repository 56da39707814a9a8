# SPDX-License-Identifier: GPL-2.0-only
"""An image boots machines, runs and saves there, and writes to nothing but its own partition.

Every machine here has disks of its own, whose content is compared afterwards. One boot shows as
much as it can, because a boot in the emulator takes most of a minute.
"""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.image.booted_machine import Case, Machine, Stick, digest
from tests.image.conftest import OLDEST
from tests.make import ROOT
from trapless.base.console import Silent
from trapless.experiments import fit, verify

pytestmark = [pytest.mark.lab, pytest.mark.slow]

MENU = r"b  restart it"
EXPERIMENT_LIMIT_S = 1800


def chosen(machine, key, *switches):
    """Choose from the boot menu, with switches changed first."""
    for switch, shown in switches:
        machine.ask(r"p  Switch the machine off", switch)
        machine.expect(shown)
    machine.ask(r"p  Switch the machine off", key)


def in_shell(machine, *commands):
    """What commands print in the shell of the menu."""
    machine.send("s")
    machine.expect("trapless# ")
    answers = []
    for command in commands:
        machine.send(f"{command}\n")
        machine.expect(r"\n")
        answers.append(machine.expect("trapless# ").removesuffix("trapless# ").strip())
    machine.send("exit\n")
    machine.expect(MENU)
    return answers


def estimated(machine):
    """Begin an estimate, interrupt it and wait for what becomes of its results."""
    machine.send("n")
    machine.expect(r"measuring on CPU \d+, in \d+ processes")
    machine.send("\x03")
    machine.expect("The run took .*: it ended with status 130")
    return machine.expect(MENU)


def check_medium(case, machine):
    """What becomes of results on this medium: saved, or not while it is full or was pulled."""
    if case.medium == "cd":
        assert "A CD cannot be written to. The results stay on the screen" in estimated(machine)
        return
    assert "SAVED on the stick, partition TRAPLESS, and read again: trapless-" in estimated(machine)
    fill = "mount /dev/sda4 /mnt && dd if=/dev/zero of=/mnt/filler bs=1M 2>&1; umount /mnt"
    (said,) = in_shell(machine, f"mkdir /mnt; {fill}")
    assert "No space left on device" in said
    shown = written_again(machine)
    assert "NOT SAVED: the stick is full: make room in its partition TRAPLESS" in shown
    assert "The results stay on the screen and in memory (/results/trapless-" in shown
    machine.pull_stick()
    shown = written_again(machine)
    assert "NOT SAVED: the stick is not there; plug it in and press w." in shown
    machine.plug_stick()
    assert "NOT SAVED: the stick is full" in written_again(machine)
    in_shell(machine, "mount /dev/sd?4 /mnt && rm /mnt/filler; umount /mnt")
    assert "SAVED on the stick" in written_again(machine)


def written_again(machine):
    machine.send("w")
    return machine.expect(MENU)


def check_experiment(machine):
    """Run experiments to their end; what the machine says of their results."""
    machine.send("q")
    shown = machine.expect(MENU, EXPERIMENT_LIMIT_S)
    assert re.search(r"The run took \d+ min: complete", shown), shown
    return shown


def end(machine, saved):
    """Switch the machine off, which asks again where something would be lost."""
    machine.send("p")
    if not saved:
        machine.expect("The results are not saved, and will be gone. Press p again")
        machine.send("p")
    machine.expect("The machine is switched off")
    assert machine.is_off()


def test_a_machine_is_measured_and_left_as_it_was(case: Case, images, tmp_path):
    stick = Stick(tmp_path / "stick.img", images.of(case.kernel))
    outside, whole = stick.outside_results(), digest(stick.path)
    off = [("s", "Supervisor mode: off"), ("m", "flaws: off")] if case.medium == "cd" else []
    with Machine(case, stick, tmp_path) as machine:
        chosen(machine, "a", *off)
        shown = machine.expect(MENU)
        assert f"{case.cpus} CPU" in shown and f"started by {case.firmware.upper()}" in shown
        assert ("Mitigations off; no supervisor mode." in shown) == bool(off)
        disks, words = in_shell(machine, "echo $(ls /sys/block)", "cat /proc/cmdline")
        assert ("mitigations=off" in words) == bool(off)
        assert disks.split() == (["sda"] if case.medium == "usb" else [])
        check_medium(case, machine)
        shown = check_experiment(machine)
        assert ("SAVED on the stick" in shown) == (case.medium == "usb")
        assert ("is left out: this takes 2 CPUs" in shown) == (case.cpus == 1)
        end(machine, saved=case.medium == "usb")
        assert machine.disks_are_untouched()
    assert stick.outside_results() == outside
    if case.medium == "cd":
        assert digest(stick.path) == whole
    else:
        check_saved(case, stick, tmp_path)


def test_a_machine_without_keys_is_measured_and_switched_off(images, tmp_path):
    words = "trapless.run=quick trapless.only=peek-overhead trapless.then=poweroff"
    image = images.of(OLDEST, f"{words} trapless.supervisor=off mitigations=off")
    stick = Stick(tmp_path / "stick.img", image)
    with Machine(Case("bios", "usb", 1, OLDEST), stick, tmp_path) as machine:
        shown = machine.expect("is switched off in 10 s", EXPERIMENT_LIMIT_S)
        assert "Mitigations off; no supervisor mode." in shown
        assert re.search(r"The run took \d+ min: complete", shown), shown
        assert "SAVED on the stick" in shown
        assert machine.is_off()
    assert any(name.endswith(".tar.xz") for name in stick.names())


def check_saved(case, stick, folder):
    """The partition has what was said to be saved: texts, and an archive that is verified."""
    names = stick.names()
    texts = [name for name in names if name.endswith(".txt")]
    packed = [name for name in names if name.endswith(".tar.xz")]
    assert (len(texts), len(packed), len(names)) == (3, 1, 5)
    for name in texts:
        text = stick.read(name).decode()
        assert "Trapless on Linux" in text and "it ended with status 130" in text
        assert not re.search(r"\x1b|\r", text)
    archive = folder / packed[0]
    archive.write_bytes(stick.read(packed[0]))
    command = [str(ROOT / "bin/trapless"), "report", "--verify", str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    results = {one.experiment: one for one in verify.verify(archive, Silent()).results}
    assert "peek-overhead" in results
    assert ("batch-size" in results) == (case.cpus > 1)
    if case.cpus > 1:  # on a file system in memory, by modules that are only at hand
        assert results["batch-size"].metrics["read1_disk.batch.n32.ratio"].n >= fit.SAMPLES_MIN
