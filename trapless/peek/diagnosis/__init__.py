# SPDX-License-Identifier: GPL-2.0-only
"""Asks why a machine hangs, for people and scripts: `trapless peek why` and its like."""
