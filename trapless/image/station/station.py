# SPDX-License-Identifier: GPL-2.0-only
"""The dialogue on a machine that was booted from the image: run, show, save, and what then.

This file owns the order of steps and the words. consoles.py shows them, medium.py saves, and the
measuring is done by `trapless evaluate --here` and `trapless estimate`, as on any machine.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trapless.image.station import medium
from trapless.image.station.boot_order import Order
from trapless.image.station.consoles import Consoles
from trapless.image.station.medium import SaveError

POWER_OFF, RESTART = 0, 64
"""The ends between which process 1 chooses by our status: trapless/vm/guest/alone.h."""

RESULTS = Path("/results")
MODULE = Path("/trapless/modules/trapless.ko")
DRIVERS_TO_TRY = ("acpi_cpufreq",)
"""Modules that some machines take and others refuse."""
POWER_OFF_S = 10.0
"""How long a key may stop a machine that was told to switch itself off."""

MENU = """\
  q  run all experiments quickly       l  look at the results again
  f  run all experiments in full       w  write the results to the stick
  n  no module: estimate only          s  a shell
  p  switch the machine off            b  restart it"""


@dataclass
class Run:
    """One run: the folder of its results, and the files of it that are to be saved."""

    folder: Path
    name: str
    status: int
    files: tuple[tuple[str, Path], ...] = ()
    saved: bool = False


class Station:
    """The machine, from its boot to its end."""

    def __init__(self, order: Order, consoles: Consoles) -> None:
        self._order, self._consoles = order, consoles
        self._last: Run | None = None
        self._say = consoles.say

    def go(self) -> int:
        """Do what was ordered, then ask. Returns how the machine shall end."""
        _prepare()
        self._introduce()
        if self._order.run != "ask":
            self._run(self._order.run)
        if self._order.then != "ask" and (end := self._end_by_itself()) is not None:
            return end
        return self._ask()

    def _introduce(self) -> None:
        self._say()
        cpus = len(os.sched_getaffinity(0))
        self._say(f"Trapless on Linux {platform.release()}, {cpus} CPU{'s' if cpus > 1 else ''}")
        self._say(f"{processor()}, started by {firmware()}")
        for complaint in self._order.complaints:
            self._say(f"boot menu: {complaint}")
        off = "mitigations=off" in Path("/proc/cmdline").read_text().split()
        supervisor = "" if self._order.supervisor == "on" else "; no supervisor mode"
        self._say(f"Mitigations {'off' if off else 'as this kernel has them'}{supervisor}.")
        self._say("This system is in memory; the machine's disks have no driver here.")
        if self._order.medium == "cd":
            self._say("Started from a CD: results stay on the screen and in memory.")
        elif stick := medium.wait_for(self._order.mark):
            self._say(f"Results go to partition TRAPLESS of this stick ({stick.partition}).")
        else:
            self._say("No partition for results was found: they stay on the screen and in memory.")

    # ---- Running ---------------------------------------------------------------------------

    def _run(self, kind: str) -> None:
        if kind != "estimate" and (reason := locked_down()):
            self._say(f"\nThe module cannot be loaded: {reason}\nInstead this estimates.")
            kind = "estimate"
        name = f"trapless-{slug(processor())}-{time.strftime('%Y%m%d-%H%M%S')}"
        run = Run(RESULTS / name, name, 0)
        run.folder.mkdir(parents=True)
        self._last = run
        self._say(f"\n$ {' '.join(command := self._command(kind, run.folder))}")
        began = time.monotonic()
        run.status = self._consoles.run(command, environment())
        minutes = (time.monotonic() - began) / 60
        ended = "complete" if run.status == 0 else f"it ended with status {run.status}"
        self._say(f"\nThe run took {minutes:.0f} min: {ended}.")
        self._pack(kind, run)
        self._save(run)

    def _command(self, kind: str, folder: Path) -> list[str]:
        if kind == "estimate":
            return ["trapless", "estimate", "--json", str(folder / "estimate.json")]
        command = ["trapless", "evaluate", "--here", "--yes", "--module", str(MODULE)]
        if kind == "quick":
            command += ["--quick", *(["--least"] if self._order.least == "on" else [])]
        if self._order.supervisor == "off":
            command.append("--no-supervisor")
        return [*command, "--out", str(folder), *self._order.only]

    def _pack(self, kind: str, run: Run) -> None:
        """Make the files that are to be saved: the results as one file, and what was shown."""
        if kind == "estimate":
            results = run.folder / "estimate.json"
            saved_as = f"{run.name}.json"
        else:
            results = RESULTS / f"{run.name}.tar.xz"
            saved_as = results.name
            packing = ["trapless", "report", str(run.folder), "--pack", str(results)]
            self._consoles.run(packing, environment())
        text = RESULTS / f"{run.name}.txt"
        text.write_bytes(self._consoles.shown())
        run.files = ((f"{run.name}.txt", text),)
        if results.exists():
            run.files = ((saved_as, results), *run.files)
        else:
            self._say("There are no results as a file: only what was shown can be saved.")

    # ---- Saving ----------------------------------------------------------------------------

    def _save(self, run: Run) -> None:
        kept = f"The results stay on the screen and in memory ({run.folder})."
        if self._order.medium == "cd":
            self._say(f"A CD cannot be written to. {kept}")
            return
        stick = medium.wait_for(self._order.mark)
        if stick is None:
            self._say(f"NOT SAVED: the stick is not there; plug it in and press w. {kept}")
            return
        try:
            names = medium.save(stick, run.files)
        except SaveError as error:
            self._say(f"NOT SAVED: {error}. {kept}")
            return
        run.saved = True
        self._say(f"SAVED on the stick, partition TRAPLESS, and read again: {', '.join(names)}")

    # ---- Asking ----------------------------------------------------------------------------

    def _end_by_itself(self) -> int | None:
        """The end that was ordered; None if a key stops it, or if results would be lost."""
        if self._last is not None and not self._last.saved:
            self._say("\nThe results are not saved, so the machine stays on.")
            return None
        off = self._order.then == "poweroff"
        doing = "is switched off" if off else "restarts"
        self._say(f"\nThe machine {doing} in {POWER_OFF_S:.0f} s; any key stops that.")
        if self._consoles.key(POWER_OFF_S) is not None:
            return None
        return POWER_OFF if off else RESTART

    def _ask(self) -> int:
        actions: dict[str, Callable[[Path], object]] = {
            "q": lambda _: self._run("quick"),
            "f": lambda _: self._run("full"),
            "n": lambda _: self._run("estimate"),
            "w": lambda _: self._write_again(),
            "l": self._look,
            "s": self._shell,
        }
        while True:
            self._say(f"\n{MENU}")
            pressed = self._consoles.key()
            assert pressed is not None
            key, console = pressed[0].lower(), pressed[1]
            if key in "pb" and self._may_end(key):
                self._say("The machine is switched off." if key == "p" else "The machine restarts.")
                return POWER_OFF if key == "p" else RESTART
            if key in actions:
                actions[key](console)

    def _may_end(self, key: str) -> bool:
        """Whether nothing would be lost, or the user has pressed the same key twice."""
        if self._last is None or self._last.saved:
            return True
        self._say(f"The results are not saved, and will be gone. Press {key} again to go on.")
        again = self._consoles.key()
        return again is not None and again[0].lower() == key

    def _write_again(self) -> None:
        if self._last is None:
            self._say("There are no results yet.")
        else:
            self._save(self._last)

    def _look(self, console: Path) -> None:
        if self._last is None:
            self._say("There are no results yet.")
            return
        report = self._last.folder / "report.txt"
        texts = [report] if report.exists() else [source for _, source in self._last.files[-1:]]
        self._consoles.on_one(console, ["less", *map(str, texts)], environment())

    def _shell(self, console: Path) -> None:
        self._say(f"A shell on {console.name}: results are in {RESULTS}; `exit` comes back.")
        self._consoles.on_one(console, ["sh", "-l"], environment())


def _prepare() -> None:
    security = ["mount", "-t", "securityfs", "-o", "ro", "securityfs", "/sys/kernel/security"]
    subprocess.run(security, capture_output=True)
    for name in DRIVERS_TO_TRY:
        subprocess.run(["modprobe", name], capture_output=True)
    RESULTS.mkdir(exist_ok=True)


def environment() -> dict[str, str]:
    """Our own variables, and those that a program on a plain screen expects."""
    return {"TERM": "linux", "COLUMNS": "80"}


def processor() -> str:
    """The processor's name, as it says it."""
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*: (.+)$", text, re.M)
    return found[1].strip() if found else platform.machine()


def firmware() -> str:
    return "UEFI" if Path("/sys/firmware/efi").is_dir() else "BIOS"


def slug(name: str) -> str:
    """A processor's name as part of a file's.

    >>> slug("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz")
    'Intel-Xeon-CPU-E5-2680-v4'
    """
    plain = re.sub(r"\(R\)|\(TM\)|@.*", " ", name)
    return "-".join(re.findall(r"[A-Za-z0-9]+", plain))[:32].strip("-") or "machine"


def locked_down(path: Path = Path("/sys/kernel/security/lockdown")) -> str:
    """Why this kernel takes no module that it cannot verify; empty where it takes ours."""
    try:
        state = path.read_text()
    except OSError:
        return ""
    if "[none]" in state:
        return ""
    return (
        "the kernel is locked down, as Secure Boot makes it, and takes signed modules only. "
        "Switch Secure Boot off in the firmware's settings to measure the module."
    )
