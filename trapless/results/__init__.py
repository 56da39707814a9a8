# SPDX-License-Identifier: GPL-2.0-only
"""What an experiment finds, as data: result.json, and the papers' claims. It draws nothing."""
