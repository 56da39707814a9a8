# SPDX-License-Identifier: GPL-2.0-only
"""Samples of an observed kernel: what is sampled, recordings, their sums, tables and figures."""
