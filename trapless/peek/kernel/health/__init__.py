# SPDX-License-Identifier: GPL-2.0-only
"""Judges what hangs in a kernel from its memory: its threads, locks, CPUs, disks and its log."""
