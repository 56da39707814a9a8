# SPDX-License-Identifier: GPL-2.0-only
"""Peek: what a running kernel does, read from outside out of its memory."""
