# SPDX-License-Identifier: GPL-2.0-only
"""The look of results: figures, tables, the report as a page and as text, and citations in
documents. It reads no raw data and measures nothing."""
