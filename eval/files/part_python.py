# SPDX-License-Identifier: GPL-2.0-only
"""Counts the same work by asyncio's tasks and by batches in Python, in a guest that gets this
machine's Python.

This file owns which files of Python the guest gets, the metrics' names and the table.
python_tasks.py owns the ways. part_native.py measures the same program.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.files import spec
from eval.files.part_calls import costs
from trapless.base.console import TraplessError
from trapless.base.paths import repo_root
from trapless.experiments import repeated_counts
from trapless.experiments.collection import Collection
from trapless.experiments.experiment import Findings, Raw
from trapless.report.figures import Figure, Table
from trapless.results.result_file import Metric
from trapless.vm.lab import LabConfig

TIMEOUT_S = 3600.0
BINDING = repo_root() / "lib/bindings/python"
EXTENSION = BINDING / "libtrapless/_ring.abi3.so"
PROGRAM = Path(__file__).with_name("python_tasks.py")
GUEST_BINDING, GUEST_PROGRAM = "/lib-python", "/python_tasks.py"
ENVIRONMENT = (("PYTHONHASHSEED", "0"), ("PYTHONDONTWRITEBYTECODE", "1"))

RATIOS = {
    "python.read.files.ratio_to_pool": ("read", "files", "pool"),
    "python.read.files-plain.ratio_to_pool": ("read", "files-plain", "pool"),
    "python.read.files.ratio_to_pool-calls": ("read", "files", "pool-calls"),
    "python.stat.files.ratio_to_pool": ("stat", "files", "pool"),
    "python.stat.files-plain.ratio_to_pool": ("stat", "files-plain", "pool"),
    "python.batch.read.ratio_to_os": ("read", "batch", "os"),
    "python.batch-plain.read.ratio_to_os": ("read", "batch-plain", "os"),
    "python.batch.getppid.ratio_to_os": ("getppid", "batch", "os"),
    "python.batch-plain.getppid.ratio_to_os": ("getppid", "batch-plain", "os"),
}
"""Metric -> work, way, and the way that it is compared with."""
WAYS = {
    "os": "os, one by one",
    "batch": "Batch of 32, module",
    "batch-plain": "Batch of 32, no module",
    "many": "read_files, stat_files",
    "pool": "to_thread, a hop a file",
    "pool-calls": "to_thread, a hop a call",
    "files": "Files, module",
    "files-plain": "Files, no module",
    "read_files": "Files.read_files, module",
    "read_files-plain": "Files.read_files, no module",
}
WORK = {
    "read": "read a whole file",
    "stat": "attributes of a file",
    "getppid": "getppid",
}


def interpreter() -> Path:
    """This Python outside of its virtual environment."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def python_files() -> list[Path]:
    """What the program imports, as it says itself."""
    command = [str(interpreter()), "-sE", "-c", IMPORTS, str(PROGRAM), str(BINDING)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TraplessError(f"the library for Python is not built (make lib): {done.stderr}")
    return [Path(name) for name in json.loads(done.stdout)]


IMPORTS = """
import sys
program, binding = sys.argv[1:3]
sys.path.insert(0, binding)
sys.argv = [program, "--modules"]
exec(compile(open(program).read(), program, "exec"), {"__name__": "__main__"})
"""


def guest_files() -> tuple[tuple[Path, str], ...]:
    files = [(interpreter(), str(interpreter())), (PROGRAM, GUEST_PROGRAM)]
    for path in python_files():
        if path.is_relative_to(BINDING):
            files.append((path, f"{GUEST_BINDING}/{path.relative_to(BINDING)}"))
        elif path != PROGRAM:
            files.append((path, str(path)))
    return tuple(files)


def collect(run: Collection) -> None:
    if not EXTENSION.exists():
        reason = "the library for Python is not built; Python's headers and `make lib` build it"
        run.write([{"skipped": "python", "reason": reason}])
        return
    config = LabConfig(
        kernel=run.kernel,
        cpus=1,
        icount=True,
        files=guest_files(),
        env=(*ENVIRONMENT, ("PYTHONPATH", GUEST_BINDING)),
        timeout_s=TIMEOUT_S,
    )
    argv = [str(interpreter()), "-s", GUEST_PROGRAM, "--kind", "counted", "--directory", "/tmp"]
    argv += ["--files", str(run.chosen(spec.PYTHON_FILES))]
    argv += ["--repeats", str(run.chosen(spec.PYTHON_REPEATS))]
    run.boot("counted", config, argv)


def is_left_out(raw: Raw) -> bool:
    return any("skipped" in row for row in raw.rows)


Least = Mapping[tuple[str, str], float]


def least(values: Mapping[tuple[str, str], Sequence[float]]) -> Least:
    return {(work.removeprefix("python-"), way): min(of) for (work, way), of in values.items()}


def analyse(raw: Raw) -> Findings:
    if is_left_out(raw):
        return Findings()
    found = costs(raw.rows, "instructions")
    metrics: dict[str, Metric] = {
        f"{work}.{way}.instructions": repeated_counts.metric(values, "instructions", digits=1)
        for (work, way), values in found.items()
    }
    by_way = least(found)
    for name, (work, way, base) in RATIOS.items():
        unit = name.rsplit(".", 1)[1]
        ratio = round(by_way[work, way] / by_way[work, base], 4)
        metrics[name] = Metric(ratio, unit, "counted", len(found[f"python-{work}", way]))
    return Findings(metrics)


def cell(found: Least, work: str, way: str) -> str:
    if (work, way) not in found:
        return "–"
    return f"{found[work, way]:,.0f} ({found[work, way] / found[work, 'os']:.2f})"


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    if is_left_out(raw):
        return ()
    found = least(costs(raw.rows, "instructions"))
    rows = tuple((name, *(cell(found, work, way) for work in WORK)) for way, name in WAYS.items())
    return (
        Table(
            id="python",
            title="The same in Python: 64 tasks of asyncio, and batches",
            columns=("by", *WORK.values()),
            rows=rows,
            kind="counted",
            caption="Instructions a file or call; in brackets os = 1. Interpreter, library and "
            "kernel together. Plain functions of os are faster than any of these, but nothing "
            "else runs while one of them waits.",
        ),
    )
