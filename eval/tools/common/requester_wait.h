/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How a requester waits for what another CPU does, the same for all mechanisms: it looks so many
 * times and then sleeps. It owns the numbers; what is looked at is the mechanism's.
 */
#ifndef EVAL_WAITING_H
#define EVAL_WAITING_H

#include "processor.h"

#define WAITING_LOOKS_MAX 4096u		/* looks before the requester sleeps */
#define WAITING_LOOKS_A_PAUSE 32u	/* under emulation a pause costs far more than a look */

/* After each look, counted from 0. */
static inline __attribute__((always_inline)) void waiting_pause(unsigned int look)
{
	if (look % WAITING_LOOKS_A_PAUSE == WAITING_LOOKS_A_PAUSE - 1)
		processor_pause();
}

#endif /* EVAL_WAITING_H */
