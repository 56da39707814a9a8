/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declares every bound of the sampler, with its unit. Together they fix the memory that the sampler
 * takes: nothing grows while it runs.
 */
#ifndef SAMPLER_LIMITS_H
#define SAMPLER_LIMITS_H

#define GROUPS_MAX 64		/* one bit each in a row's bitmaps */
#define FIELDS_MAX 512
#define FIELD_BYTES_MAX 4096
#define STEPS_MAX 4		/* pointers followed one after the other */
#define BASES_MAX 16		/* ranges of virtual addresses that pointers may lie in */
#define REGIONS_MAX 64		/* of memory, in files */
#define READ_BLOCK_BYTES 1024	/* that a read by a system call takes along */
#define READ_BLOCKS 8
#define THREADS_MAX 64		/* whose run time stands in each row */
#define NAME_BYTES_MAX 64
#define ROW_BYTES_MAX (64u << 10)
#define PLAN_BYTES_MAX (1u << 20)

#define TRIES_MAX 8		/* readings of one group before it counts as torn */

#define INTERVAL_NS_MIN 1000ull
#define INTERVAL_NS_MAX (3600ull * 1000 * 1000 * 1000)
#define SPIN_NS_MAX 1000000ull	/* longest wait before a deadline that may be spent looking */

#define WAIT_NS_MAX 100000000ull	/* asleep before a look whether all are still there */

#define BLOCK_BYTES (256u << 10)	/* at most this much goes out at a time */
#define BLOCKS 32			/* waiting to be written; beyond, rows are lost */
#define BLOCK_AGE_NS 100000000ull	/* a reader sees a row after this time at the latest */

#define RUN_TIME_AGE_NS 1000000ull	/* how old a thread's run time in a row may be */
#define FROZEN_AFTER_NS 10000000ull	/* a runnable thread that has stood still for so long */

#endif
