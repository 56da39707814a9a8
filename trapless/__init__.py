# SPDX-License-Identifier: GPL-2.0-only
"""Trapless: system calls without the trap. This package is the `trapless` command.

It owns what people run: the lab, the module's build, the experiments and their reports. The
kernel module (kmod/) and the library (lib/) are C and do not depend on it.
"""

from __future__ import annotations

__version__ = "0.1.0"
