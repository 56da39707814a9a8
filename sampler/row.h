/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declares the stream of samples; trapless/peek/sampling/sample_rows.py decodes it. All numbers are
 * little-endian. A stream is:
 *
 *   struct stream_head, then `head_bytes` of text: what the rows mean, line by line
 *   struct block_head and its rows, again and again
 *   struct stream_end, unless the sampler was killed
 *
 * A row is struct row, the run time of each thread in ns (8 bytes each), the fields in the order of
 * the plan without gaps, and zeros up to a multiple of 8.
 */
#ifndef SAMPLER_ROW_H
#define SAMPLER_ROW_H

#include <stdint.h>

#define STREAM_MAGIC "TLPEEK1\n"
#define BLOCK_MAGIC 0x534b4c42u	/* "BLKS" */
#define END_MAGIC 0x53444e45u	/* "ENDS" */

struct stream_head {
	char magic[8];
	uint32_t head_bytes;	/* of the text that follows, a multiple of 8 */
	uint32_t row_bytes;
};

struct block_head {
	uint32_t magic;
	uint32_t rows;
};

/* Why sampling ended. */
enum ending {
	ENDING_DURATION,	/* as planned */
	ENDING_SIGNAL,		/* it was asked to */
	ENDING_TARGET,		/* the process to watch, or the one that was read, has ended */
	ENDING_SOURCE,		/* the memory is gone: its file was cut */
	ENDING_OUTPUT,		/* the output takes no more; nobody may see this */
	ENDINGS,
};

struct stream_end {
	uint32_t magic;
	uint32_t ending;
	uint64_t rows;		/* written; torn, late, ... are parts of it */
	uint64_t slots;		/* that there were, from the first to the last row */
	uint64_t lost;		/* slots without a row */
	uint64_t late;
	uint64_t torn;
	uint64_t frozen;
	uint64_t absent;
	uint64_t retries;
	uint64_t unwritten;	/* of the lost: taken, but the output was too slow */
};

#define ROW_LATE 1u	/* taken more than half an interval after its deadline */
#define ROW_TORN 2u	/* `torn` says which groups changed during each of their readings */
#define ROW_FROZEN 4u	/* a thread that is to run does not: the state is an old one */
#define ROW_ABSENT 8u	/* `absent` says in which groups a field could not be read: zeros */

struct row {
	uint64_t slot;		/* deadline = first deadline + slot * interval */
	uint64_t t_ns;		/* CLOCK_MONOTONIC, before the first read */
	uint32_t lag_ns;	/* from the deadline to t_ns */
	uint32_t cost_ns;	/* from t_ns to after the last read */
	uint32_t flags;
	uint32_t retries;	/* readings of groups beyond the first */
	uint64_t torn;		/* one bit a group */
	uint64_t absent;	/* one bit a group */
	uint64_t frozen;	/* one bit a thread */
};

_Static_assert(sizeof(struct stream_head) == 16, "frozen");
_Static_assert(sizeof(struct block_head) == 8, "frozen");
_Static_assert(sizeof(struct stream_end) == 80, "frozen");
_Static_assert(sizeof(struct row) == 56, "frozen");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "rows are little-endian");

#endif
