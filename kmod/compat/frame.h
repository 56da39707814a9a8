/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A thread's register frame, and what a call leaves in it, on the processor that the kernel is
 * built for. This header chooses; x86/frame.h and arm64/frame.h own the same names, one for each.
 */
#ifndef TLK_COMPAT_FRAME_H
#define TLK_COMPAT_FRAME_H

#ifdef __aarch64__
#include "compat/arm64/frame.h"
#else
#include "compat/x86/frame.h"
#endif

#endif /* TLK_COMPAT_FRAME_H */
