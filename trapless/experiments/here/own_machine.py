# SPDX-License-Identifier: GPL-2.0-only
"""This machine in results: its description, the folder that is named after it, and which
experiments it can run. It measures nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from trapless.base import cache
from trapless.base.console import TraplessError
from trapless.estimate import estimated_machine
from trapless.experiments import experiment
from trapless.experiments.collection import Row
from trapless.experiments.experiment import Spec

WORDS_MAX = 6
CPU = 0
"""The CPU to which all workloads pin their requester."""


def facts(module: Path) -> Row:
    """The facts about the machine in meta.json, beside its processor and kernel."""
    found = estimated_machine.describe(CPU)
    return {
        "hypervisor": found.hypervisor,
        "governor": found.governor,
        "mitigations": dict(found.mitigations),
        "not_pinned": list(found.not_pinned),
        "module": f"sha256:{cache.sha256_file(module)}",
    }


def folder_name() -> str:
    """A folder for the results of this machine.

    >>> re.fullmatch("[a-z0-9.-]+", folder_name()) is not None
    True
    """
    found = estimated_machine.describe(CPU)
    return slug(f"{found.processor} linux {os.uname().release}")


def slug(text: str) -> str:
    """Words as part of a path.

    >>> slug("AMD Ryzen 7 7700X 8-Core Processor linux 6.1.0-56-amd64")
    'amd-ryzen-7-7700x-8-core-linux-6.1.0-56-amd64'
    >>> slug("Intel(R) Core(TM) i7-6700 CPU @ 3.40GHz linux 6.12.9")
    'intel-core-i7-6700-cpu-linux-6.12.9'
    """
    name, _, kernel = text.rpartition(" linux ")
    words = re.sub(r"\((?:r|tm)\)|@.*", " ", name.lower())
    short = re.findall(r"[a-z0-9.]+", words)[:WORDS_MAX]
    return "-".join([*short, "linux", re.sub(r"[^a-z0-9.-]+", "-", kernel.lower())])


def chosen(wanted: Sequence[str]) -> tuple[list[Spec], dict[str, str]]:
    """The experiments to run here, and those that are left out with the reason for each. One that
    was asked for by name and cannot run here is an error."""
    specs, absent = [], {}
    for name in wanted or experiment.names():
        spec = experiment.get_here(name)
        if spec is None:
            absent[name] = experiment.get(name).needs
        else:
            specs.append(spec)
    if wanted and absent:
        words = "; ".join(f"{name}: {why}" for name, why in absent.items())
        raise TraplessError(f"cannot run on a machine's own kernel: {words}", status=2)
    return specs, absent
