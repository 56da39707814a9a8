# SPDX-License-Identifier: GPL-2.0-only
"""`trapless stat`: what crossings cost a program, and which mechanism would take away how much."""
