# SPDX-License-Identifier: GPL-2.0-only
"""From saved results to what people read: result.json and the papers' claims, and the report as a
page, as text and as the README's table. Starts no machine and measures nothing."""
