# SPDX-License-Identifier: GPL-2.0-only
"""Experiment files: what a program that may not block pays for calls on files.

This file owns the question, the method and the limits, in words, and the sizes and rounds. Each
part_*.py owns what is run, the metrics and the figures.
"""

from __future__ import annotations

from trapless.experiments.collection import Extent
from trapless.experiments.experiment import Spec, part

TASKS = 64
FILES = Extent(256, 64)
REPEATS = Extent(5, 2)
PYTHON_FILES = Extent(128, 64)
PYTHON_REPEATS = Extent(3, 1)
NATIVE_FILES = 5000
NATIVE_REPEATS = 9

SPEC = Spec(
    name="files",
    paper="parallel-system-call",
    question="What does an asynchronous program pay for calls on files when each of them takes a "
    "hop to a thread, and what when the calls of all tasks share one?",
    method=(
        "64 tasks at once ask for the attributes of small files in memory, read whole files, write "
        "and fsync them, and walk a tree: by plain calls one after another, by a pool of threads "
        "(a hop for each file, and a hop for each call), by io_uring, and by Files, with the "
        "module and without. In C and in Python. Counted in the lab: instructions of all threads "
        "and the kernel, and crossings. Measured on this machine without the module, by turns: CPU "
        "time, also of Node and of Rust's tokio where they are installed."
    ),
    limits=(
        "Files lie in memory and no call waits for a device: what is left is what each way adds.",
        "Counted on one CPU, where threads take turns: what runs at the same time on two is not "
        "seen. The native part has this machine's CPUs.",
        "The pool in C has four threads, as libuv has, and does nothing but this.",
        "io_uring leaves statx, and opening a file for writing, to threads of the kernel; it lists "
        "no folder, so it walks no tree.",
        "Native ratios are CPU time, user and system together, of all threads of a process. The "
        "module is not in this machine's kernel.",
    ),
    needs="its native part measures this machine in every full run, and the rest counts",
    parts=(
        part("files", "calls"),
        part("files", "python"),
        part("files", "native", full_only=True, alone=True),
    ),
    minutes=(1, 4),
)
