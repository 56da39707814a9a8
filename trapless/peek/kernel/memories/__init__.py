# SPDX-License-Identifier: GPL-2.0-only
"""Physical memory of a machine from images of all formats, a process, a debugger's stub, or by its
own kernel."""
