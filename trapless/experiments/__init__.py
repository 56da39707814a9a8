# SPDX-License-Identifier: GPL-2.0-only
"""Experiments: which there are, how they run in the lab and save raw data, and the report on them.
The folder of an experiment under eval/ says what it asks."""
