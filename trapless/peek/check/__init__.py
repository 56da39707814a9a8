# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek check`: memory held against the registers of a machine that is stopped."""
