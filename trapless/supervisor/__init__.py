# SPDX-License-Identifier: GPL-2.0-only
"""Supervisor mode from Python: switching processes, listing them, and the reasons of refusals."""
