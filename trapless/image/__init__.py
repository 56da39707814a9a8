# SPDX-License-Identifier: GPL-2.0-only
"""The lab on a stick: an image that boots a machine and measures it. eval/image.md says what."""
