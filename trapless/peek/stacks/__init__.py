# SPDX-License-Identifier: GPL-2.0-only
"""Stacks of a running kernel: sampled beside a recording, added up, shown as flame graphs."""
