// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Writes blocks of rows to a file or pipe. It owns the stream's framing, and the ring of blocks
 * with one producer (the sampling thread) and one consumer (the writing thread).
 */
#include "output.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "limits.h"

struct block {
	uint32_t rows;
	uint8_t *bytes;		/* a struct block_head, then rows */
};

struct output {
	int descriptor;
	uint32_t row_bytes;
	uint32_t rows_max;	/* in a block */
	pthread_t writer;
	sem_t full;		/* counts the blocks handed over, and one more at the end */
	/*
	 * Blocks [written, handed) are the writer's. handed is stored (release) by the sampling
	 * thread and loaded (acquire) by the writer; written the other way round.
	 */
	uint64_t handed;
	uint64_t written;
	int failed;		/* written by the writer; 0 or -errno */
	uint64_t began_ns;	/* first row of the block being filled */
	struct block block[BLOCKS];
};

static int write_all(int descriptor, const void *bytes, size_t length)
{
	const uint8_t *at = bytes;

	while (length) {
		ssize_t done = write(descriptor, at, length);

		if (done < 0 && errno != EINTR)
			return -errno;
		if (done > 0) {
			at += done;
			length -= (size_t)done;
		}
	}
	return 0;
}

static void *write_blocks(void *argument)
{
	struct output *output = argument;

	for (;;) {
		uint64_t next = output->written;
		struct block *block = &output->block[next % BLOCKS];
		int status;

		while (sem_wait(&output->full) && errno == EINTR)
			;
		if (next == __atomic_load_n(&output->handed, __ATOMIC_ACQUIRE))
			return NULL;	/* the wake-up brings no block: the end */
		status = output->failed;
		if (!status) {
			struct block_head head = { .magic = BLOCK_MAGIC, .rows = block->rows };

			memcpy(block->bytes, &head, sizeof(head));
			status = write_all(output->descriptor, block->bytes,
					   sizeof(head) + (size_t)block->rows * output->row_bytes);
			__atomic_store_n(&output->failed, status, __ATOMIC_RELAXED);
		}
		block->rows = 0;
		__atomic_store_n(&output->written, next + 1, __ATOMIC_RELEASE);
	}
}

static int write_head(int descriptor, const char *text, uint32_t row_bytes)
{
	struct stream_head head = { .magic = STREAM_MAGIC, .row_bytes = row_bytes };
	size_t length = strlen(text);
	int status;
	char gap[8];

	memset(gap, '\n', sizeof(gap));
	head.head_bytes = (uint32_t)((length + 7) & ~7ul);
	status = write_all(descriptor, &head, sizeof(head));
	if (!status)
		status = write_all(descriptor, text, length);
	if (!status)
		status = write_all(descriptor, gap, head.head_bytes - length);
	return status;
}

static void release(struct output *output)
{
	unsigned int i;

	for (i = 0; i < BLOCKS; i++)
		free(output->block[i].bytes);
	sem_destroy(&output->full);
	free(output);
}

static int allocate(struct output *output)
{
	unsigned int i;

	for (i = 0; i < BLOCKS; i++) {
		size_t bytes = sizeof(struct block_head) +
			       (size_t)output->rows_max * output->row_bytes;

		output->block[i].bytes = malloc(bytes);
		if (!output->block[i].bytes)
			return -ENOMEM;
		memset(output->block[i].bytes, 0, bytes);	/* now, not while sampling */
	}
	return 0;
}

/*
 * The number of rows that a block can get before its age ends it. More room would never be used,
 * and an observer of many machines has many samplers.
 */
static uint32_t rows_max(uint32_t row_bytes, uint64_t interval_ns)
{
	uint64_t in_time = BLOCK_AGE_NS / interval_ns + 1;

	return in_time < BLOCK_BYTES / row_bytes ? (uint32_t)in_time : BLOCK_BYTES / row_bytes;
}

int output_create(struct output **result, int descriptor, const char *text, uint32_t row_bytes,
		  uint64_t interval_ns)
{
	struct output *output = calloc(1, sizeof(*output));
	int status;

	if (!output)
		return -ENOMEM;
	output->descriptor = descriptor;
	output->row_bytes = row_bytes;
	output->rows_max = rows_max(row_bytes, interval_ns);
	sem_init(&output->full, 0, 0);
	status = allocate(output);
	if (!status)
		status = write_head(descriptor, text, row_bytes);
	if (!status)
		status = -pthread_create(&output->writer, NULL, write_blocks, output);
	if (status)
		release(output);
	else
		*result = output;
	return status;
}

uint8_t *output_row(struct output *output)
{
	uint64_t written = __atomic_load_n(&output->written, __ATOMIC_ACQUIRE);
	struct block *block = &output->block[output->handed % BLOCKS];
	uint8_t *row;

	if (output->handed - written == BLOCKS)
		return NULL;
	row = block->bytes + sizeof(struct block_head) + (size_t)block->rows * output->row_bytes;
	memset(row, 0, output->row_bytes);
	return row;
}

static void hand_over(struct output *output)
{
	uint64_t next = output->handed + 1;

	/* The next block may still be the writer's; output_row() checks that before it is used. */
	__atomic_store_n(&output->handed, next, __ATOMIC_RELEASE);
	sem_post(&output->full);
}

void output_commit(struct output *output, uint64_t now_ns, uint64_t linger_ns)
{
	struct block *block = &output->block[output->handed % BLOCKS];

	if (!block->rows++)
		output->began_ns = now_ns;
	if (block->rows == output->rows_max ||
	    now_ns + linger_ns - output->began_ns >= BLOCK_AGE_NS)
		hand_over(output);
}

int output_failed(const struct output *output)
{
	return __atomic_load_n(&output->failed, __ATOMIC_RELAXED);
}

int output_destroy(struct output *output, const struct stream_end *end)
{
	uint64_t written = __atomic_load_n(&output->written, __ATOMIC_ACQUIRE);
	int status;

	if (output->handed - written < BLOCKS && output->block[output->handed % BLOCKS].rows)
		hand_over(output);
	sem_post(&output->full);
	pthread_join(output->writer, NULL);
	status = output->failed;
	if (!status && end)
		status = write_all(output->descriptor, end, sizeof(*end));
	release(output);
	return status;
}
