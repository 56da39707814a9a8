/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * futex.h - sleeping on a word of memory and waking who sleeps there, within one process. It owns
 * the call; what a word means is its user's business.
 */
#ifndef TRAPLESS_LIB_FUTEX_H
#define TRAPLESS_LIB_FUTEX_H

#include <linux/futex.h>
#include <time.h>

#include "door.h"

/* With a timeout, even one of a century, no handler's SA_RESTART turns -EINTR into more sleep. */
static inline int futex_wait(uint32_t *word, uint32_t value)
{
	static const struct timespec century = { .tv_sec = 3155760000 };

	return (int)call6(SYS_futex, (uintptr_t)word, FUTEX_WAIT_PRIVATE, value,
			  (uintptr_t)&century, 0, 0);
}

static inline void futex_wake(uint32_t *word, int n)
{
	call6(SYS_futex, (uintptr_t)word, FUTEX_WAKE_PRIVATE, (uint64_t)n, 0, 0, 0);
}

#endif /* TRAPLESS_LIB_FUTEX_H */
