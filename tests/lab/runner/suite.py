# SPDX-License-Identifier: GPL-2.0-only
"""Runs the lab's C programs in VMs and keeps what each of them did.

Owns the order of the programs, their time limits, and what happens when one of them takes the
guest's kernel down: the VM is started again with the rest. verdict.py judges the programs.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tests.lab.runner import bochs
from tests.lab.runner.verdict import Outcome
from tests.make import make
from trapless.base.console import Progress, TraplessError
from trapless.stock import kbuild, kernels
from trapless.stock.debug_kernel import SPECS
from trapless.vm import lab

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent.parent
BINARY = ROOT / "build/tests/lab/labtests"
RECORDS = ROOT / "build/tests/lab/outcomes"
HELPERS = ("nmi_storm", "hold", "guests", "protection")
"""Modules of the tests' own, in modules/."""

FOLDERS = (
    "batch", "identity", "lib", "ring", "seccomp", "signal", "supervisor", "tracing", "worker",
)  # fmt: skip
"""Each C file in them and below is a program; LAB_FOLDERS in Makefile.inc says the same."""

BOCHS_FOLDERS = ("batch", "supervisor")
"""Those that also run in Bochs."""

BACKENDS = ROOT / "tests/unit/lib/backends"
"""Unit tests of the library that run on either backend; the lab runs them on the module."""

Files = tuple[tuple[Path, str], ...]

MODULE_PARAMETERS = "supervisor=1"
# For supervisor_entry_overwritten_by_others: the way to another CPU's MSRs, as others take it.
MODULES = (("msr", "allow_writes=on"),)
APPEND = (
    "msr.allow_writes=on vsyscall=xonly rcupdate.rcu_cpu_stall_timeout=120"
    " sysctl.kernel.hung_task_timeout_secs=300 sysctl.kernel.watchdog_thresh=60"
    " sysctl.kernel.yama.ptrace_scope=0"
)
"""The first where msr is built in; the second for supervisor_odd_calls_are_answered; the last where
Yama lets nobody trace a process that is not his child, as Ubuntu has it. On a busy machine a thread
of the kernel can wait for its turn longer than RCU's usual 21 seconds, others for it longer than a
debug kernel's 30, and all for a processor longer than the watchdog's 20: the guest takes for run
time what its processor has waited for one of ours."""

LIMIT_S = 600
LIMIT_ALL_S = 3 * 3600
"""Limits for one program and for all programs of a VM, seconds; they are for hangs only."""
STOPPED_S = 60
"""A guest whose programs end by no limit any more stands still: by the emulator's fault that
TAKE_TURNS is for, once in some hundred boots."""
DEBUG_FACTOR = 4
"""A KASAN and lockdep kernel is that much slower."""

CRASHES_MAX = 5
"""After so many dead guests the rest of a kernel's programs is not run."""

# Patching the kernel's code while two emulated CPUs run it crashes QEMU's guest with no module
# loaded; these get a VM whose CPUs take turns. Loading the module with supervisor=1 patches, too:
# once a boot is a risk that is taken, hundreds of times is none. What happens is that a CPU goes on
# with its translation of a breakpoint which memory no longer holds: the kernel retries for ever, or
# ends in an oops. Suspending patches the jump labels of the freezer each time.
TAKE_TURNS = frozenset(
    {
        "events_at_every_tracepoint",
        "syscall_tracepoint_makes_batch_busy",
        "module_unload_is_refused_while_in_use",
        "probes_refuse_a_module_that_goes",
        "probes_soak",
        "supervisor_is_offered_beside_guests",
        "supervisor_module_is_held_while_in_use",
        "supervisor_suspend_and_resume",
        "supervisor_switch_amid_fork_and_exec",
        "supervisor_tracepoint_sees_every_call",
        "supervisor_uprobe_is_hit",
        "tracer_goes_during_endless_program",
    }
)

# These change the kernel for all that come after them, or look at what all others left behind.
LAST = (
    "supervisor_audited_process_is_recorded",
    "audited_thread_is_busy",
    "kmemleak_finds_nothing",
)


@dataclass(frozen=True)
class Around:
    """A program that loads the module itself, and then runs the runner: its words, and the files
    that replace or join the usual ones."""

    argv: tuple[str, ...]
    files: Files
    env: tuple[tuple[str, str], ...] = ()


@dataclass
class Suite:
    """The chosen programs on one kernel. They run when the first outcome is asked for."""

    kernel: str
    around: Around | None = None
    emulator: str = "qemu"
    names: list[str] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    logs: list[str] = field(default_factory=list)
    errors: list[bytes] = field(default_factory=list)  # what each VM's runner wrote there
    error: str = ""  # why programs are missing
    ran: bool = False

    def run(self, progress: Progress) -> None:
        """Run all programs once; later calls do nothing."""
        if self.ran:
            return
        self.ran = True
        try:
            build_programs(progress)
            files = module_files(self.kernel, progress)
        except TraplessError as error:
            self.error = str(error)
            return
        of_turns = TAKE_TURNS if self.emulator == "qemu" else ()
        together = [name for name in self.names if name not in of_turns]
        in_turns = [name for name in self.names if name in of_turns]
        self._run_group(sorted(together, key=_rank), files, False, progress)
        self._run_group(sorted(in_turns, key=_rank), files, True, progress)
        self._save()

    def outcome(self, name: str) -> Outcome:
        """What became of one program."""
        return self.outcomes.get(name, Outcome("missing", 0, self.error, ""))

    def _save(self) -> None:
        """Leave all outcomes where a person can read what passing programs printed."""
        RECORDS.mkdir(parents=True, exist_ok=True)
        lines = [
            json.dumps({"program": name, **asdict(outcome)})
            for name, outcome in sorted(self.outcomes.items())
        ]
        in_bochs = "-bochs" if self.emulator == "bochs" else ""
        path = RECORDS / f"{self.kernel.strip('/').replace('/', '-')}{in_bochs}.jsonl"
        path.write_text("\n".join(lines) + "\n")

    def _run_group(
        self, names: Sequence[str], files: Files, thread_single: bool, progress: Progress
    ) -> None:
        left, crashes = list(names), 0
        while left and crashes < CRASHES_MAX:
            vm = _Vm(self.kernel, files, thread_single, self.around, self.emulator)
            try:
                self.logs.append(vm.run(left, progress))
                self.errors.append(vm.errors)
                progress.done()
            except TraplessError as error:
                crashes += 1
                self.error = str(error)
                culprit = vm.begun
                if culprit:
                    vm.outcomes[culprit] = Outcome("crash", 0, str(error), str(error))
                elif not vm.outcomes:
                    return  # it never came to the first program: trying again helps nobody
            self.outcomes |= vm.outcomes
            left = [name for name in left if name not in vm.outcomes]


class _Vm:
    """One VM: gives the runner its programs and reads its lines as they come."""

    def __init__(
        self,
        kernel: str,
        files: Files,
        thread_single: bool,
        around: Around | None = None,
        emulator: str = "qemu",
    ) -> None:
        self._kernel, self._files, self._thread_single = kernel, files, thread_single
        self._around, self._emulator = around, emulator
        self._tail = b""
        self.errors = b""
        self.begun = ""  # the program that runs now
        self.outcomes: dict[str, Outcome] = {}

    def run(self, names: Sequence[str], progress: Progress) -> str:
        """Run the programs; returns the kernel's log. Raises TraplessError when the VM dies."""
        slow = self._kernel in SPECS or os.sep in self._kernel  # a path may be a debug kernel
        factor = DEBUG_FACTOR if slow else 1
        limit_s = LIMIT_S * factor

        def sink(piece: bytes) -> None:
            self._take(piece)
            progress.advance(len(self.outcomes), len(names))

        environment = tuple(
            (name, value) for name, value in os.environ.items() if name.startswith("TL_")
        )
        config = lab.LabConfig(
            kernel=self._kernel,
            cpus=2,
            thread_single=self._thread_single,
            timeout_s=min(len(names) * limit_s + 60, LIMIT_ALL_S * factor),
            output_limit_s=limit_s + STOPPED_S,
            module_parameters=MODULE_PARAMETERS,
            files=self._files,
            env=environment,
            modules=MODULES,
            append=APPEND,
        )
        argv = [str(BINARY), "--each", *(f"{name}={limit_s}" for name in names)]
        if self._emulator == "bochs":
            with tempfile.TemporaryDirectory() as folder:
                last = bochs.run(config, argv, Path(folder), sink, progress)
            if missing := [name for name in names if name not in self.outcomes]:
                raise TraplessError(f"Bochs has ended before {missing[0]} did:\n{last}")
            return ""
        if self._around is not None:
            places = {place for _, place in self._around.files}
            rest = tuple(pair for pair in self._files if pair[1] not in places)
            config = replace(
                config,
                module=False,
                module_parameters="",
                files=rest + self._around.files,
                env=environment + self._around.env,
            )
            argv = [*self._around.argv, *argv[1:]]
        result = lab.run(config, argv, sink=sink, progress=progress)
        self.errors = result.stderr
        if result.status != 0:
            raise TraplessError(
                f"the runner ended with status {result.status}: "
                f"{result.stderr.decode(errors='replace')}"
            )
        return result.kernel_log

    def _take(self, piece: bytes) -> None:
        *lines, self._tail = (self._tail + piece).split(b"\n")
        for line in lines:
            record = json.loads(line)
            if "begin" in record:
                self.begun = record["begin"]
                continue
            name = record.pop("test")
            if self._emulator == "bochs":
                record["kernel"] = bochs.without_its_own(record["kernel"])
            self.outcomes[name] = Outcome(**record)
            self.begun = ""


def sources() -> dict[str, Path]:
    """The C file of each program, by the program's name."""
    files = {path.stem: path for folder in FOLDERS for path in (TESTS / folder).rglob("*.c")}
    files |= {f"lib_{path.stem}": path for path in BACKENDS.rglob("*.c")}
    return dict(sorted(files.items()))


def programs() -> list[str]:
    """The names of all programs."""
    return list(sources())


def in_bochs() -> list[str]:
    """The names of those that also run in Bochs."""
    folders = [TESTS / folder for folder in BOCHS_FOLDERS]
    return [name for name, path in sources().items() if any(map(path.is_relative_to, folders))]


def of_the_library() -> frozenset[str]:
    """The names of those that test the library's own logic, which is the same on each kernel."""
    return frozenset(name for name, path in sources().items() if path.is_relative_to(BACKENDS))


def kernel_names(option: str) -> list[str]:
    """The value of --kernels, as names; `all` and `others` stand for the lists of kernels.py."""
    lists = {"all": kernels.SUPPORTED, "others": kernels.OTHERS}
    words = [word for word in option.split(",") if word]
    return [
        name
        for word in words
        for name in ([spec.name for spec in lists[word]] if word in lists else [word])
    ]


def module_files(kernel: str, progress: Progress) -> Files:
    """What the programs find in the guest: the module, to be loaded again, and the helpers."""
    resolved = kernels.resolve(kernel, progress)
    folder = TESTS / "modules"
    return (
        (kbuild.module_for(resolved, progress), "/trapless.ko"),
        *(
            (kbuild.module_for(resolved, progress, folder / name, f"{name}.ko"), f"/{name}.ko")
            for name in HELPERS
        ),
    )


def build_programs(progress: Progress) -> None:
    """Bring build/tests/lab/labtests up to date."""
    progress.step("building the lab's programs")
    make(BINARY)


def _rank(name: str) -> tuple[int, str]:
    return (LAST.index(name) + 1 if name in LAST else 0, name)
