# SPDX-License-Identifier: GPL-2.0-only
"""`trapless estimate`: what a trap costs on this machine, and what batches would save here."""
