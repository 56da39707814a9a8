# SPDX-License-Identifier: GPL-2.0-only
"""The VM of a fleet as data that is sent elsewhere. QEMU and kernels are stood in for."""

from __future__ import annotations

import pytest

from trapless.base.console import Silent, TraplessError
from trapless.experiments.fleet import vm
from trapless.model import plugin_choice
from trapless.stock.kernel import Kernel
from trapless.vm import lab, qemu
from trapless.vm.initramfs import Packed


@pytest.mark.parametrize("quick", [False, True])
def test_a_vm_elsewhere_starts_as_it_was_prepared(tmp_path, monkeypatch, quick):
    for name in ("own", "quick", "model.so"):
        (tmp_path / name).write_bytes(name.encode())
    kernel = Kernel("6.1", "0.0-stock", tmp_path / "own", None, None)
    prepared = lab.Guest(kernel, Packed(b"archive"), tmp_path / "quick" if quick else None)
    ran = []

    def run(config, argv, *, sink, guest):
        ran.append(guest)
        raise TraplessError("that is all")

    monkeypatch.setattr(lab, "prepare", lambda *_: prepared)
    monkeypatch.setattr(lab, "run", run)
    monkeypatch.setattr(qemu, "binary", lambda: "qemu")
    monkeypatch.setattr(plugin_choice, "file", lambda binary: tmp_path / "model.so")
    task, files = vm.pack("x", lab.LabConfig(), ("/bin/x",), b"plan", Silent())
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    assert vm.drive(task, files, folder).failure == "that is all"
    (guest,) = ran
    assert (guest.image is not None) is quick
    assert (guest.image or guest.kernel.image).parent == folder
    assert (guest.image or guest.kernel.image).read_bytes() == (b"quick" if quick else b"own")
