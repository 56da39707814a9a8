# SPDX-License-Identifier: GPL-2.0-only
"""Tools for every part of the command: console, paths, files, cache, tools, ELF files, Parquet."""
