# SPDX-License-Identifier: GPL-2.0-only
"""Reads user mode from the kernel's own structures: the stacks of processes and their files."""
