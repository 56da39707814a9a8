# SPDX-License-Identifier: GPL-2.0-only
"""Reads a guest in a process of its own, which can do nothing but read that guest and answer."""
