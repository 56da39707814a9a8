# SPDX-License-Identifier: GPL-2.0-only
"""Gives what peek reads to other tools: cores, tables of symbols, and a program of drgn."""
