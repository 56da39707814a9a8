# SPDX-License-Identifier: MIT
"""Experiment own-call: what a call takes, plain and in a batch.

This file owns the words of the experiment, and how often it repeats; its part owns the rest.
"""

from __future__ import annotations

from trapless.experiments.collection import Extent
from trapless.experiments.experiment import Spec, part

REPEATS = Extent(20, 5)
"""Of a full run, and of a quick one."""

SPEC = Spec(
    name="own-call",
    paper="",  # it tests none
    question="How many instructions does a getppid take, plain and in a batch of 32?",
    method="Counted in an emulated guest of one CPU, by the processor's counter around 32 calls.",
    limits=("Counted instructions leave out what a trap costs a processor's pipeline.",),
    parts=(part("own_call", "counts"),),
    minutes=(0.6, 0.6),
)
