# SPDX-License-Identifier: GPL-2.0-only
"""The memory hierarchy: processors as data, what the model is told, and the rows it writes."""
