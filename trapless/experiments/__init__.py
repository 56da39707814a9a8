# SPDX-License-Identifier: GPL-2.0-only
"""Experiments: which there are, running them in the lab into raw data, and the report on them.
What one experiment asks stands in its own folder under eval/."""
