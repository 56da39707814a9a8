# SPDX-License-Identifier: GPL-2.0-only
"""Stands in for the process beside a VM of a fleet: the same program, but for lab.run().

Instead of a VM, a function writes what the model's plugin would, of a grid's rows or of a program
that is counted, and dies where it is told: by the variable MADE_UP_GUEST, for tests and this
process have nothing else in common.
"""

from __future__ import annotations

import json
import os
import re
import time

from trapless.base.console import TraplessError
from trapless.experiments.fleet import vm
from trapless.stat import labels
from trapless.vm import lab

VARIABLE = "MADE_UP_GUEST"
COLUMNS = ["user.reads", "kernel.reads"]
HEADER = {"format": "trapless-model", "version": 1, "columns": COLUMNS, "structures": []}
REGIONS = 3
COUNTS = [30, 12]
"""Of a program."""


def counts(label):
    return [label * 7, label * 11]


def run(config, argv, *, sink, guest):
    """lab.run(): what the plugin writes of this command, and the workload's own lines."""
    told = json.loads(os.environ[VARIABLE])
    with open(told["ran"], "a") as file:
        file.write(f"{argv[2]} {os.getpid()} {os.getppid()}\n")
    output = re.search("output=([^,]+)", config.plugins[-1])[1]
    with open(output, "w") as rows:
        rows.write(json.dumps(HEADER) + "\n")
        said = program(told, rows) if argv[0] == "/bin/sh" else grid(told, rows, argv[2])
        rows.write(json.dumps({"end": {"rows": 0}}) + "\n")
    sink(json.dumps(said).encode() + b"\n")
    if told.get("good", True):
        sink(b'{"complete": true}\n')
    return lab.LabResult(0, b"", b"", "", "0.0-stock", 1.0, ("qemu", "-plugin", "x"))


def grid(told, rows, mask):
    """REGIONS regions for each '1' in the mask."""
    for row, wanted in enumerate(mask):
        for region in range(REGIONS if wanted == "1" else 0):
            label = 10 * row + region
            if label == told.get("dies_at"):
                rows.write('{"region": 1, "cou')
                raise TraplessError("the VM ended before the command finished")
            write(rows, label, [value + told.get("wrong", False) for value in counts(label)])
            if label == told.get("complains_at"):
                rows.write(json.dumps({"event": "two regions at once"}) + "\n")
            rows.flush()
            if label == told.get("hangs"):
                time.sleep(60)
    return {"check": "sums", "made": 4}


def program(told, rows):
    """Two turns on the processor, and last the facts that the guest's program adds."""
    for turn in (1, 2):
        write(rows, turn << 12 | labels.PROGRAM, COUNTS)
    facts = (
        labels.FACT_LEFT_RUNNING,
        labels.FACT_WORKED,
        labels.FACT_REFUSALS,
        labels.FACT_STATUS,
    )
    for fact in facts:
        if fact not in told.get("lacks", ()):
            write(rows, fact << 4 | labels.FACT, [0, 0])
    return {"proof": "2 of 2"}


def write(rows, label, values):
    rows.write(json.dumps({"region": label, "number": 0, "counts": values}) + "\n")


def main():
    lab.run = run
    vm.main()
