# SPDX-License-Identifier: GPL-2.0-only
"""Experiments on this machine's own kernel, with the module loaded: `trapless evaluate --here`."""
