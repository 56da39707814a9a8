/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Gives room for thunks, within reach of the kernel's code by a jump of five bytes. This file owns
 * the room; thunk.c writes the thunks. Until then it is filled with traps. A stack trace that
 * begins in a thunk ends there.
 */
#include <linux/linkage.h>

#include "compat/unwind.h"
#include "probe/area.h"

	/* The kernel refuses kprobes in here: thunks come and go. */
	.section .kprobes.text, "ax"
	.balign	64
SYM_CODE_START(tlk_probe_area)
	TLK_ANNOTATE_NOENDBR
	TLK_UNWIND_HINT_NONE
	.fill	TLK_PROBE_AREA_BYTES, 1, 0xcc
	ud2			/* the end, as objtool understands it */
SYM_CODE_END(tlk_probe_area)
