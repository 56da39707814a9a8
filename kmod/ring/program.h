/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Programs: batches whose requests take results and words of memory as arguments, and jump. This
 * header owns the entry; ring.h owns the memory.
 */
#ifndef TLK_PROGRAM_H
#define TLK_PROGRAM_H

#include "ring/request.h"
#include "ring/ring.h"

/* TL_ENTER_PROGRAM. */
long tlk_program_enter(struct tlk_ring *ring, struct file *file, unsigned long argument);

/* A program that a worker makes (TL_NR_PROGRAM). It lives on the worker's stack. */
struct tlk_worker_program {
	struct tl_request __user *requests;
	u32 end;			/* their number */
	u32 at;				/* the next step */
	bool chain;			/* a step that fails ends the program */
	u64 steps;			/* how many more may be made */
	u64 calls;			/* steps that were calls, made or refused */
	long result;			/* of the last step */
};

/* Takes the arguments of the request in the frame: 0 or -EINVAL. */
int tlk_program_begin(struct tlk_worker_program *program, const struct pt_regs *regs);

/* Makes the step `at`, which is before the end, unless context->ending says that it did not. */
void tlk_program_step(struct tlk_worker_program *program, struct tlk_context *context);

#endif /* TLK_PROGRAM_H */
