# SPDX-License-Identifier: GPL-2.0-only
"""An observed kernel, found in its memory alone: symbols, types, pages, tasks, stacks."""
