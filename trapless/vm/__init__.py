# SPDX-License-Identifier: GPL-2.0-only
"""The lab: a command in a virtual machine on a stock kernel. `lab.run` is its face; the rest is how
the guest is made, started, watched and cleared away. Knows nothing of experiments."""
