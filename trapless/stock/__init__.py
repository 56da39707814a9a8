# SPDX-License-Identifier: GPL-2.0-only
"""Kernels of distributions: found at a mirror or on this machine, unpacked into the cache, and the
module built for each. Knows nothing of virtual machines or experiments."""
