# SPDX-License-Identifier: GPL-2.0-only
"""The lab: runs a command in a virtual machine on a stock kernel. `lab.run` is its interface; the
other files make, start, watch and end the guest. It knows no experiment."""
