# SPDX-License-Identifier: GPL-2.0-only
"""Experiment peek-overhead: what being observed costs the observed machine.

Owns the words of the experiment; its parts own what is run and what is made of it.
"""

from __future__ import annotations

from trapless.measure.experiments import Spec, load_part

SPEC = Spec(
    name="peek-overhead",
    paper="memory-peeping",
    question="What does it cost a machine that its memory is read while it runs?",
    method=(
        "A program reads or writes 256 MB over a region of 2 KB to 1 MB, again and again, while an "
        "observer on another processor reads the same region back to back, at the pace of a "
        "recording, or another region (Fig. 6 of the paper): on this machine, where the observer "
        "maps the memory or reads it by system calls, and in a guest."
    ),
    limits=(
        "A guest is emulated here: its program reaches memory far more slowly than a processor "
        "would, so it loses less. The same program on this machine itself shows what a processor "
        "loses to a reader on another one.",
    ),
    parts=tuple(load_part(__file__, name) for name in ("bandwidth",)),
)
