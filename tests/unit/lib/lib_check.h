/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Short names for frequent steps of the library's unit tests. It adds no assertion to those of the
 * lab's check.h.
 */
#ifndef TL_UNIT_LIB_CHECK_H
#define TL_UNIT_LIB_CHECK_H

#include "check.h"

#include <setjmp.h>
#include <trapless.h>

/* The lab compiles the programs of backends/ with TL_MODULE, so that they test the module alone. */
#ifndef LIB_FLAGS
#define LIB_FLAGS 0
#endif

static inline struct tl_batch *batch_new_flags(unsigned int entries, unsigned int flags)
{
	struct tl_batch *batch = NULL;

	CHECK_EQ(tl_batch_create(&batch, entries, LIB_FLAGS | flags), 0);
	return batch;
}

static inline struct tl_batch *batch_new(unsigned int entries)
{
	return batch_new_flags(entries, 0);
}

static inline struct tl_batch *batch_new_unordered(unsigned int entries)
{
	return batch_new_flags(entries, TL_UNORDERED);
}

/* A handler that leaves a flush by a jump, and where it leads. */
static sigjmp_buf out_of_flush __attribute__((unused));

static inline void jump_out_of_flush(int signal)
{
	(void)signal;
	siglongjmp(out_of_flush, 1);
}

/* Flushes until no call is queued. Returns the number of flushes. */
static inline int flush_all(struct tl_batch *batch)
{
	int flushes = 0;

	for (; tl_batch_queued(batch); flushes++)
		CHECK(tl_batch_flush(batch) >= 0);
	return flushes;
}

static inline struct tl_sched *sched_new(uint32_t flush_at, uint32_t entries, uint64_t deadline_ns)
{
	struct tl_sched_config config = {
		.size = sizeof(config),
		.flags = LIB_FLAGS,
		.flush_at = flush_at,
		.entries = entries,
		.deadline_ns = deadline_ns,
	};
	struct tl_sched *sched = NULL;

	CHECK_EQ(tl_sched_create(&sched, &config), 0);
	return sched;
}

static inline struct tl_psc *psc_new(unsigned int entries, unsigned int spin_us,
				     unsigned int workers)
{
	struct tl_psc *psc = NULL;

	CHECK_EQ(tl_psc_create(&psc, entries, spin_us, LIB_FLAGS), 0);
	CHECK_EQ(tl_psc_start(psc, workers), 0);
	return psc;
}

static inline struct tl_sched_stats sched_stats(const struct tl_sched *sched)
{
	struct tl_sched_stats stats = { .size = sizeof(stats) };

	CHECK_EQ(tl_sched_get_stats(sched, &stats), 0);
	return stats;
}

/*
 * Adds a read of an empty pipe, which a signal interrupts: SIGALRM's handler has no SA_RESTART, and
 * `handled` counts its runs from 0 on. The caller closes the pipe.
 */
static inline void add_read_to_interrupt(struct tl_batch *batch, int pipes[2], char *byte)
{
	MUST(pipe(pipes));
	on_signal(SIGALRM, count_signal, 0);
	handled = 0;
	TL_ADD(batch, SYS_read, pipes[0], byte, 1);
}

#endif /* TL_UNIT_LIB_CHECK_H */
