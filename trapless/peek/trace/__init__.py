# SPDX-License-Identifier: GPL-2.0-only
"""Events at places in an observed kernel: read from rings in its memory, decoded and written."""
