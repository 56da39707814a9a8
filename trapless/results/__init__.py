# SPDX-License-Identifier: GPL-2.0-only
"""The results of experiments as data: result.json, and the papers' claims. It draws nothing."""
