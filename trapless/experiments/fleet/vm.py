# SPDX-License-Identifier: GPL-2.0-only
"""One VM of a fleet on any machine: what is sent for it, and the process that drives it.

A task carries the kernel's image, the guest's files, the model's plugin and its plan, so that the
same bytes run everywhere. The process (main()) reads its task from standard input, writes the
output of the plugin to standard output as it grows, and ends together with the VM and its folder
when standard input ends: the process that started it may die in any way. This file knows no other
machine (vm_task.py, engine.py) and no meaning of rows (grid_rows.py, trapless/stat).
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from trapless.base.console import Progress, Silent, TraplessError
from trapless.experiments.collection import Row, RowStream, fault
from trapless.model import plugin_choice
from trapless.stock.kernel import Kernel
from trapless.vm import lab, qemu
from trapless.vm.initramfs import Packed

LOOK_S = 0.5
"""How often the plugin's output is looked at, seconds."""

IMAGE, ARCHIVE, LIBRARY, MODELLED = "vmlinuz", "initramfs.cpio", "model.so", "modelled"
"""Names of the files that come with a task."""

REMOVALS = 10
"""How many attempts are made to remove a folder that is still written to."""

OUTPUT = "rows.jsonl"
GROWTH, OVER = "growth", "over"
"""Messages: (GROWTH, bytes), where no bytes are a sign of life; and last (OVER, Outcome)."""


@dataclass(frozen=True)
class Task:
    """The job of one VM. `config` names neither kernel nor files, which are sent along."""

    label: str
    config: lab.LabConfig
    argv: tuple[str, ...]
    kernel: str
    release: str
    provenance: Mapping[str, str]
    starts_quickly: bool  # the image is one that does: see lab.prepare()


@dataclass(frozen=True)
class Outcome:
    """How a VM ended: with a result and the workload's rows, or with the reason of a failure."""

    result: lab.LabResult | None = None
    checks: Sequence[Row] = field(default_factory=list)
    failure: str = ""
    began_s: float = 0.0  # by the machine's clock
    wall_s: float = 0.0


def pack(
    label: str, config: lab.LabConfig, argv: tuple[str, ...], modelled: bytes, progress: Progress
) -> tuple[Task, dict[str, bytes]]:
    """A VM as data that can be sent to any machine: the task, and its files."""
    guest = lab.prepare(config, argv, progress)
    archive = io.BytesIO()
    guest.files.write(archive)
    files = {
        IMAGE: (guest.image or guest.kernel.image).read_bytes(),
        ARCHIVE: archive.getvalue(),
        LIBRARY: plugin_choice.file(qemu.binary()).read_bytes(),
        MODELLED: modelled,
    }
    kernel = guest.kernel
    bare = replace(config, files=())
    quick = guest.image is not None
    return Task(label, bare, argv, kernel.name, kernel.release, kernel.provenance, quick), files


def drive(task: Task, files: Mapping[str, bytes], folder: Path) -> Outcome:
    """Run the VM with its files in `folder`, where the plugin writes OUTPUT."""
    began_s, began = time.time(), time.monotonic()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    stream = RowStream(io.StringIO(), "", Silent())
    kernel = Kernel(
        name=task.kernel,
        release=task.release,
        image=folder / IMAGE,
        build_dir=None,
        modules_dir=None,
        provenance=dict(task.provenance),
    )
    try:
        model = plugin_choice.argument(folder / MODELLED, folder / OUTPUT, library=folder / LIBRARY)
        config = replace(task.config, plugins=(*task.config.plugins, model))
        image = kernel.image if task.starts_quickly else None
        guest = lab.Guest(kernel, Packed(files[ARCHIVE]), image)
        result = lab.run(config, task.argv, sink=stream.feed, guest=guest)
    except TraplessError as error:
        return Outcome(failure=str(error))
    stream.close()
    wrong = fault(stream, result)
    if wrong:
        return Outcome(failure=wrong)
    words = tuple(word.replace(str(folder), "VM") for word in result.qemu_argv)
    made = replace(result, qemu_argv=words)
    return Outcome(made, stream.rows, began_s=began_s, wall_s=time.monotonic() - began)


class Tail:
    """Sends what is added to a file, and signs of life, until it is stopped."""

    def __init__(self, path: Path, channel: BinaryIO) -> None:
        self._path, self._channel, self._sent = path, channel, 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._go, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send the rest of the file, and stop."""
        self._stopped.set()
        self._thread.join()
        self._send()

    def _go(self) -> None:
        with contextlib.suppress(OSError):  # nobody reads any more: this process will end
            while not self._stopped.wait(LOOK_S):
                self._send()

    def _send(self) -> None:
        growth = b""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._sent)
                growth = file.read()
        self._sent += len(growth)
        send(self._channel, GROWTH, growth)


def send(channel: BinaryIO, kind: str, what: Any) -> None:
    """Send one message to the process that started this one."""
    pickle.dump((kind, what), channel)
    channel.flush()


def main() -> None:
    """Drive the VM whose task is on standard input, in the folder that the command line names."""
    for ours in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ours, lambda *_: None)  # our parent gets it, too, and ends us
    folder = Path(sys.argv[1])
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # other output must not get between the messages
    try:
        task, files = pickle.load(sys.stdin.buffer)
    except (EOFError, pickle.UnpicklingError):
        _leave(folder)
    threading.Thread(target=_end_with_input, args=(folder,), daemon=True).start()
    tail = Tail(folder / OUTPUT, channel)
    outcome = drive(task, files, folder)
    tail.stop()
    send(channel, OVER, outcome)


def _end_with_input(folder: Path) -> None:
    while os.read(0, 1):  # nothing more is sent: this waits for the end
        pass
    _leave(folder)


def _leave(folder: Path) -> NoReturn:
    """Remove the folder, since the parent is gone; this process may still add files to it."""
    for _ in range(REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
        time.sleep(LOOK_S)
    os._exit(1)  # and the VM dies with this process
