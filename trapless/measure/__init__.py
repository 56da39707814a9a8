# SPDX-License-Identifier: GPL-2.0-only
"""Experiments: which there are, running them in the lab into saved raw data, and the arithmetic on
that data that they share. What one experiment asks stands in its own folder under eval/."""
