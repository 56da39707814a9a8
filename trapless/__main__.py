# SPDX-License-Identifier: GPL-2.0-only
"""`python -m trapless`: the same command as bin/trapless. Owns nothing else."""

from __future__ import annotations

from trapless.cli import main

if __name__ == "__main__":
    main()
