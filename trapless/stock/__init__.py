# SPDX-License-Identifier: GPL-2.0-only
"""Kernels and programs of distributions: fetched from a mirror or given by a path, unpacked, and
the module built for each kernel. It knows neither virtual machines nor experiments."""
