# SPDX-License-Identifier: GPL-2.0-only
"""Reads a kernel from its memory alone: symbols, types, page tables, modules, tasks."""
