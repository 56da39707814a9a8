# SPDX-License-Identifier: GPL-2.0-only
"""What every part of the command uses: console, paths, files, cache, tools, ELF files, Parquet."""
