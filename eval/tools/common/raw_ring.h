/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A ring of the module that is opened without the library, so that a program can enter it by either
 * trap. The library's inline functions queue its requests on `raw.batch`.
 */
#ifndef EVAL_RAW_RING_H
#define EVAL_RAW_RING_H

#include <stdbool.h>
#include <trapless.h>
#include <sys/syscall.h>

#include "traps.h"

struct raw_ring {
	struct tl_batch batch;
	int fd;
};

/* entries: a power of two, up to TL_ENTRIES_MAX. 0 or -errno. */
int raw_ring_open(struct raw_ring *raw, unsigned int entries);
void raw_ring_close(struct raw_ring *raw);

/* Makes one crossing for n requests from slot 0 on, and frees the slots. Returns its result. */
static inline __attribute__((always_inline)) int raw_ring_enter(struct raw_ring *raw,
								unsigned int n, bool by_int)
{
	long done;

	/* The offset of the INT trap has 32 bits. */
	done = by_int ? trap_int_enter(INT_NR_LSEEK, (uint64_t)raw->fd, INT32_MAX,
				       TL_ENTER_BATCH, (uintptr_t)raw->batch.requests, n)
		      : trap_fast_enter(SYS_lseek, (uint64_t)raw->fd, TL_ENTER_OFFSET,
					TL_ENTER_BATCH, (uintptr_t)raw->batch.requests, n);
	raw->batch.next = raw->batch.requests;
	return (int)done;
}

#endif /* EVAL_RAW_RING_H */
