// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A reader that reads nothing fills the blocks between it and the sampling thread, and then there
 * is no place for a row; nothing waits, nothing grows. All that was taken arrives once it reads,
 * and a reader that has gone is noticed.
 */
#include "check.h"
#include "limits.h"
#include "output.h"

#define ROW 4096u

static int ends[2];
static uint64_t arrived;

/* Checks the stream's framing on the way. */
static void *read_all(void *argument)
{
	struct block_head block;
	FILE *stream = fdopen(ends[0], "r");
	struct stream_head head;
	struct stream_end end;
	static char text[256];
	uint64_t next = 0;
	uint64_t row[ROW / 8];

	CHECK_EQ(fread(&head, sizeof(head), 1, stream), 1);
	CHECK(!memcmp(head.magic, STREAM_MAGIC, 8));
	CHECK_EQ(head.row_bytes, ROW);
	CHECK_EQ(head.head_bytes % 8, 0);
	CHECK_EQ(fread(text, head.head_bytes, 1, stream), 1);
	CHECK(!memcmp(text, "what it is\n", 11));
	while (fread(&block, sizeof(block), 1, stream) == 1 && block.magic == BLOCK_MAGIC) {
		while (block.rows--) {
			CHECK_EQ(fread(row, sizeof(row), 1, stream), 1);
			CHECK_EQ(row[0], next);
			next++;
		}
	}
	memcpy(&end, &block, sizeof(block));
	CHECK_EQ(fread((char *)&end + sizeof(block), sizeof(end) - sizeof(block), 1, stream), 1);
	CHECK_EQ(end.magic, END_MAGIC);
	CHECK_EQ(end.rows, 77);
	arrived = next;
	return argument;
}

int main(void)
{
	struct stream_end end = { .magic = END_MAGIC, .rows = 77 };
	struct output *output;
	uint64_t taken = 0, tries;
	pthread_t reader;
	uint8_t *row;

	signal(SIGPIPE, SIG_IGN);
	CHECK_EQ(pipe(ends), 0);
	CHECK_EQ(output_create(&output, ends[1], "what it is\n", ROW, 1000), 0);
	for (tries = 0; tries < 3ull * BLOCKS * BLOCK_BYTES / ROW; tries++) {
		row = output_row(output);
		if (row) {
			memcpy(row, &taken, sizeof(taken));
			taken++;
			output_commit(output, tries, 1);
		}
	}
	CHECK(taken >= (BLOCKS - 1ull) * (BLOCK_BYTES / ROW));
	CHECK(taken <= (BLOCKS + 1ull) * (BLOCK_BYTES / ROW));
	CHECK_EQ(pthread_create(&reader, NULL, read_all, NULL), 0);
	while (!(row = output_row(output)))
		usleep(1000);
	memcpy(row, &taken, sizeof(taken));
	taken++;
	output_commit(output, tries, 1);
	CHECK_EQ(output_destroy(output, &end), 0);
	close(ends[1]);
	pthread_join(reader, NULL);
	CHECK_EQ(arrived, taken);

	CHECK_EQ(pipe(ends), 0);
	CHECK_EQ(output_create(&output, ends[1], "", ROW, 1000), 0);
	close(ends[0]);
	CHECK(output_row(output) != NULL);
	output_commit(output, 0, BLOCK_AGE_NS);	/* too old to wait for more */
	while (!output_failed(output))
		usleep(1000);
	CHECK_EQ(output_destroy(output, &end), -EPIPE);
	return 0;
}
