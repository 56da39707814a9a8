# SPDX-License-Identifier: GPL-2.0-only
"""Measures the same work on this machine, without the module: CPU time of C, Python, Node and Rust,
as ratios of ways that alternate.

This file owns which programs are started here, the ratios and their table. What a machine lacks is
left out with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from eval.files import spec
from eval.files.part_python import BINDING, EXTENSION, PROGRAM
from trapless.base import json_text
from trapless.base.console import TraplessError
from trapless.base.paths import build_dir, repo_root
from trapless.experiments import fit
from trapless.experiments.collection import Collection, Row, option_words
from trapless.experiments.experiment import Findings, Raw, workload
from trapless.report.figures import Figure, Table
from trapless.results.result_file import Metric

NODE_BINDING = repo_root() / "lib/bindings/node"
RUST_PROGRAM = build_dir() / "rust-tokio/release/examples/tasks"
"""Built by `cargo build --release --example tasks` in lib/bindings/rust-tokio."""
TIMEOUT_S = 1800

RATIOS = {
    "stat": (("files-plain", "plain"), ("files-plain", "pool"), ("files-plain", "pool-calls"),
             ("files-plain", "uring")),
    "read": (("files-plain", "plain"), ("files-plain", "pool"), ("files-plain", "pool-calls"),
             ("files-plain", "uring")),
    "python-stat": (("files-plain", "pool"), ("files-plain", "aiofiles"), ("many", "os")),
    "python-read": (("files-plain", "pool"), ("files-plain", "aiofiles"),
                    ("read_files-plain", "aiofiles"), ("batch-plain", "os")),
    "python-getppid": (("batch-plain", "os"),),
    "node-stat": (("files", "pool"), ("many", "os")),
    "node-read": (("files", "pool"), ("files", "os")),
    "rust-stat": (("files", "pool"),),
    "rust-read": (("files", "pool"),),
    "rust-open-read": (("files", "pool"),),
}  # fmt: skip
"""Work -> ways, each with the way that it takes the place of."""
NAMES = {
    "files": "Files",
    "files-plain": "Files",
    "read_files-plain": "Files.read_files",
    "many": "the whole list at once",
    "batch-plain": "Batch of 32",
    "plain": "plain calls, one by one",
    "pool": "a pool, a hop a file",
    "pool-calls": "a pool, a hop a call",
    "uring": "io_uring",
    "os": "synchronous functions",
    "aiofiles": "aiofiles",
}
OTHERS = {
    ("python", "pool"): "asyncio.to_thread",
    ("python", "os"): "os",
    ("node", "pool"): "fs.promises",
    ("node", "os"): "fs, synchronous",
    ("rust", "pool"): "tokio::fs",
}
WORK = {
    "stat": "attributes",
    "read": "read whole",
    "open-read": "open, read through File",
    "getppid": "getppid",
}
LANGUAGES = {"python": "Python", "node": "Node", "rust": "Rust"}


def programs(directory: Path) -> Iterator[tuple[str, list[str], str]]:
    """Language, command, and the reason why it cannot be run, if any."""
    files, repeats = str(spec.NATIVE_FILES), str(spec.NATIVE_REPEATS)
    options = {
        "kind": "measured",
        "calls": "stat,read",
        "directory": directory,
        "files": files,
        "repeats": repeats,
        "sizes": (spec.TASKS,),
    }
    yield "C", [str(workload("files")), *option_words(options)], ""
    arguments = ["--directory", str(directory), "--files", files, "--repeats", repeats]
    lacks = "" if EXTENSION.exists() else "the library for Python is not built"
    yield "Python", [sys.executable, str(PROGRAM), *arguments], lacks
    node = shutil.which("node")
    lacks = "" if node else "node is not installed"
    if node and not (NODE_BINDING / "build/trapless.node").exists():
        lacks = "the package for Node is not built"
    script = str(Path(__file__).with_name("node_tasks.mjs"))
    yield "Node", [node or "", script, str(NODE_BINDING), str(directory), files, repeats], lacks
    lacks = "" if RUST_PROGRAM.exists() else "the crate trapless-tokio is not built"
    yield "Rust", [str(RUST_PROGRAM), str(directory), files, repeats, "--json"], lacks


def measured(language: str, command: Sequence[str]) -> Iterator[Row]:
    """The rows of one program."""
    environment = dict(os.environ, PYTHONPATH=str(BINDING))
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    rows = [json_text.parse(line.encode()) for line in done.stdout.splitlines()]
    if done.returncode or not rows or rows[-1] != {"complete": True}:
        raise TraplessError(f"files, native, {language}: {done.stdout[-500:]}{done.stderr[-2000:]}")
    for row in rows:
        if "value" in row:
            yield row


def collect(run: Collection) -> None:
    for number in range(4):
        with tempfile.TemporaryDirectory(prefix="trapless-files-", dir=memory()) as folder:
            language, command, lacks = list(programs(Path(folder)))[number]
            if lacks:
                run.write([{"skipped": language, "reason": lacks}])
                continue
            run.progress.step(f"{run.name}: native, {language}")
            with run.turn(alone=True):
                run.write(measured(language, command))
            run.progress.done()


def memory() -> str | None:
    """A folder in memory, where the machine has one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def ratios(raw: Raw) -> Mapping[tuple[str, str, str], fit.Summary]:
    """Work, way and the other way -> CPU time of the same round."""
    times: dict[tuple[str, str], dict[int, float]] = {}
    for row in raw.rows:
        if "value" in row:
            of = times.setdefault((row["call"], row["mechanism"]), {})
            of[row["repeat"]] = row["value"]
    found = {}
    for work, pairs in RATIOS.items():
        for way, base in pairs:
            both = fit.paired_ratios(times.get((work, way), {}), times.get((work, base), {}))
            if both:
                found[work, way, base] = fit.summary(both)
    return found


def analyse(raw: Raw) -> Findings:
    metrics = {}
    for (work, way, base), one in ratios(raw).items():
        unit = f"cpu_ratio_to_{base}"
        metrics[f"native.{work}.{way}.{unit}"] = Metric(
            round(one.median, 4), unit, "measured", one.n, round(one.spread, 4)
        )
    return Findings(metrics)


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    rows = []
    for (work, way, base), one in ratios(raw).items():
        language, _, subject = work.partition("-") if "-" in work else ("", "", work)
        other = OTHERS.get((language, base), NAMES[base])
        name = LANGUAGES.get(language, "C")
        rows.append((name, WORK[subject], NAMES[way], other, fit.percent(one)))
    left_out = ", ".join(
        f"{row['skipped']} ({row['reason']})" for row in raw.rows if "reason" in row
    )
    return (
        Table(
            id="native",
            title="CPU time on this machine, native, without the module",
            columns=("in", "work", "by", "beside", "CPU time"),
            rows=tuple(rows),
            kind="measured",
            caption=f"Native: medians and intervals of {spec.NATIVE_REPEATS} alternating rounds, "
            f"{spec.NATIVE_FILES:,} files of 3,000 bytes in memory, 64 tasks; user and system time "
            "of all threads. Other programs may have run meanwhile."
            + (f" Left out: {left_out}." if left_out else ""),
        ),
    )
