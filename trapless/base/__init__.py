# SPDX-License-Identifier: GPL-2.0-only
"""What every part of the command stands on: console, paths, cache, tools, ELF files."""
