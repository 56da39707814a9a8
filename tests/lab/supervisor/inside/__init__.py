# SPDX-License-Identifier: GPL-2.0-only
"""Tests that run inside a guest, on the host's files, with the module loaded. Their names keep
pytest from collecting them on the host; test_lab_switch.py beside this folder runs them in VMs."""
