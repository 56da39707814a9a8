# SPDX-License-Identifier: GPL-2.0-only
"""`trapless doctor`: what this machine and its kernel can run, and what would help."""
