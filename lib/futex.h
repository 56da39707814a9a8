/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * Sleeps on a word of memory, and wakes the threads that sleep there, within one process. It owns
 * the system call; its users own the meaning of the word. futex_wait() returns 0 or -errno.
 */
#ifndef TRAPLESS_LIB_FUTEX_H
#define TRAPLESS_LIB_FUTEX_H

#include <linux/futex.h>
#include <time.h>

#include "enter.h"

/* With a timeout the call returns -EINTR even after an SA_RESTART handler. */
static inline int futex_wait_for(uint32_t *word, uint32_t value, const struct timespec *timeout)
{
	return (int)raw_syscall(SYS_futex, (uintptr_t)word, FUTEX_WAIT_PRIVATE, value,
			  (uintptr_t)timeout, 0, 0);
}

static inline int futex_wait(uint32_t *word, uint32_t value)
{
	static const struct timespec century = { .tv_sec = 3155760000 };

	return futex_wait_for(word, value, &century);
}

static inline void futex_wake(uint32_t *word, int n)
{
	raw_syscall(SYS_futex, (uintptr_t)word, FUTEX_WAKE_PRIVATE, (uint64_t)n, 0, 0, 0);
}

#endif /* TRAPLESS_LIB_FUTEX_H */
