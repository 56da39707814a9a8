# SPDX-License-Identifier: GPL-2.0-only
"""Many VMs of one experiment, run side by side on this machine's cores or on other machines."""
