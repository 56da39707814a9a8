# SPDX-License-Identifier: GPL-2.0-only
"""Observes all virtual machines of this host, and serves what they do over HTTP."""
