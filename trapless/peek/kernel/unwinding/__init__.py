# SPDX-License-Identifier: GPL-2.0-only
"""How stacks in the kernel are unwound: by the frames of each processor."""
