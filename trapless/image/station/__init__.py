# SPDX-License-Identifier: GPL-2.0-only
"""What runs on a machine that was booted from the image; nothing here is used to build one."""
