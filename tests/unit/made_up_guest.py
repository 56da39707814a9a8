# SPDX-License-Identifier: GPL-2.0-only
"""Stands in for the process beside a VM of a grid: the same program, but for lab.run().

Instead of a VM, a function writes what the model's plugin would and dies where it is told: by the
variable MADE_UP_GUEST, for tests and this process have nothing else in common.
"""

from __future__ import annotations

import json
import os
import re
import time

from trapless.console import TraplessError
from trapless.measure import grid_vm
from trapless.vm import lab

VARIABLE = "MADE_UP_GUEST"
COLUMNS = ["user.reads", "kernel.reads"]
HEADER = {"format": "trapless-model", "version": 1, "columns": COLUMNS, "structures": []}
REGIONS = 3


def counts(label):
    return [label * 7, label * 11]


def run(config, argv, *, sink, guest):
    """lab.run(): rows of REGIONS regions for each '1' in the mask, and one line of output."""
    told = json.loads(os.environ[VARIABLE])
    with open(told["ran"], "a") as file:
        file.write(f"{argv[2]} {os.getpid()} {os.getppid()}\n")
    output = re.search("output=([^,]+)", config.plugins[-1])[1]
    with open(output, "w") as rows:
        rows.write(json.dumps(HEADER) + "\n")
        for row, wanted in enumerate(argv[2]):
            for region in range(REGIONS if wanted == "1" else 0):
                label = 10 * row + region
                if label == told.get("dies_at"):
                    rows.write('{"region": 1, "cou')
                    raise TraplessError("the VM ended before the command finished")
                made = [value + told.get("wrong", False) for value in counts(label)]
                rows.write(json.dumps({"region": label, "number": 0, "counts": made}) + "\n")
                if label == told.get("complains_at"):
                    rows.write(json.dumps({"event": "two regions at once"}) + "\n")
                rows.flush()
                if label == told.get("hangs"):
                    time.sleep(60)
        rows.write(json.dumps({"end": {"rows": 0}}) + "\n")
    sink(b'{"check": "sums", "made": 4}\n')
    if told.get("good", True):
        sink(b'{"complete": true}\n')
    return lab.LabResult(0, b"", b"", "", "0.0-stock", 1.0, ("qemu", "-plugin", "x"))


def main():
    lab.run = run
    grid_vm.main()
