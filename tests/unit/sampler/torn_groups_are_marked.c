// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Whatever a writer does meanwhile, a group that is not marked as torn is one that the writer left
 * behind as a whole. Pointers are followed where they lead into memory, and only there.
 */
#include "plan_memory.h"

#define SAMPLES 200000u

static struct memory memory;
static volatile bool stop;

struct record {
	volatile uint32_t seq0;
	volatile uint32_t a[4];
	volatile uint32_t seq1;
};

/* By the rule: seq0, then the record, then seq1. All its words are alike. */
static void *write_record(void *argument)
{
	struct record *record = (void *)memory.bytes;
	uint32_t value = 0, i;

	(void)argument;
	while (!stop) {
		value++;
		record->seq0++;
		for (i = 0; i < 4; i++)
			record->a[i] = value;
		record->seq1++;
		if (value % 64 == 0)
			sched_yield();
	}
	return NULL;
}

static void whole_or_torn(void)
{
	struct plan *plan = plan_of("trapless-plan 1\ninterval-ns 1000\n"
				    "group record seqlock 20 0\nfield a 16 4\n"
				    "group flags once\nfield first 4 4\n");
	struct source source = source_of(memory.path);
	unsigned int i, differ = 0;
	uint32_t data[5], last = 0;
	pthread_t writer;

	CHECK_EQ(pthread_create(&writer, NULL, write_record, NULL), 0);
	/* A busy machine may keep the writer waiting: then there are more samples. */
	for (i = 0; i < SAMPLES || differ < 2; i++) {
		struct row row = { 0 };

		CHECK_EQ(sample_take(plan, &source, &row, (uint8_t *)data), 0);
		CHECK_EQ(!!(row.flags & ROW_TORN), row.torn != 0);
		CHECK_EQ(row.torn & ~1ull, 0);	/* what is read once is never torn */
		if (!row.torn && (data[0] != data[1] || data[0] != data[2] || data[0] != data[3]))
			FAIL("%u %u %u %u is marked as whole", data[0], data[1], data[2], data[3]);
		if (row.torn)
			CHECK_EQ(row.retries, TRIES_MAX - 1);
		differ += data[0] != last;
		last = data[0];
	}
	stop = true;
	pthread_join(writer, NULL);
	source_close(&source);
	free(plan);
}

/* A source that gives another answer each time: every reading of a stable group differs. */
static int restless_read(struct source *source, uint64_t physical, void *into, size_t length)
{
	uint32_t *count = source->state;

	(void)physical;
	memset(into, 0, length);
	memcpy(into, count, length < 4 ? length : 4);
	++*count;
	return 0;
}

static int restless_check(struct source *source)
{
	(void)source;
	return 0;
}

static void stable_is_read_again(void)
{
	static const struct source_kind restless = { .read = restless_read,
						     .check = restless_check };
	uint32_t count = 0;
	struct source source = { .kind = &restless, .state = &count };
	struct plan *plan = plan_of("trapless-plan 1\ninterval-ns 1000\n"
				    "group g stable\nfield a 4 4\n");
	struct row row = { 0 };
	uint32_t data;

	CHECK_EQ(sample_take(plan, &source, &row, (uint8_t *)&data), 0);
	CHECK_EQ(row.torn, 1);
	CHECK_EQ(row.flags, ROW_TORN);
	CHECK_EQ(count, 2 * TRIES_MAX);
	free(plan);
}

/* Reads places one after the other, and counts how often it was asked. */
static unsigned int rounds;

static int together(struct source *source, struct source_place *place, size_t places)
{
	size_t i;

	rounds++;
	for (i = 0; i < places; i++)
		place[i].status = source->kind->read(source, place[i].physical, place[i].into,
						     place[i].length);
	return 0;
}

/* The same whether fields are read one by one or together. */
static void follows_pointers(bool at_once)
{
	struct plan *plan = plan_of("trapless-plan 1\ninterval-ns 1000\n"
				    "base 0xffff888000000000 0x10000 0\n"
				    "base 0xffffffff80000000 0x1000 0x2000\n"
				    "group g stable\nfield pid 4 0x100 0x20\n"
				    "field chain 2 0x100 0x28 4\n"
				    "group h stable\nfield lost 8 0x108 0\n"
				    "group i once\nfield beyond 8 0x110 0\n");
	struct source_kind kind;
	struct source source;
	struct row row = { 0 };
	uint8_t data[32];

	memset(data, 0xff, sizeof(data));
	*(uint64_t *)(memory.bytes + 0x100) = 0xffff888000003000;
	*(uint32_t *)(memory.bytes + 0x3020) = 4711;
	*(uint64_t *)(memory.bytes + 0x3028) = 0xffffffff80000010;
	*(uint16_t *)(memory.bytes + 0x2014) = 99;
	*(uint64_t *)(memory.bytes + 0x108) = 0;			/* no pointer */
	*(uint64_t *)(memory.bytes + 0x110) = 0xffff88800000fffd;	/* over the edge */
	source = source_of(memory.path);
	kind = *source.kind;
	kind.read_together = at_once ? together : NULL;
	source.kind = &kind;
	CHECK_EQ(sample_take(plan, &source, &row, data), 0);
	CHECK_EQ(*(uint32_t *)data, 4711);
	CHECK_EQ(*(uint16_t *)(data + 4), 99);
	CHECK_EQ(row.torn, 0);
	CHECK_EQ(row.absent, 6);
	CHECK_EQ(row.flags, ROW_ABSENT);
	CHECK(!memcmp(data + 6, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16));
	source_close(&source);
	free(plan);
}

int main(void)
{
	memory = memory_new(64u << 10);
	whole_or_torn();
	stable_is_read_again();
	follows_pointers(false);
	CHECK_EQ(rounds, 0);
	follows_pointers(true);
	CHECK_EQ(rounds, 2 * 3 + 2 * 1 + 2);	/* each reading: a round a pointer, and one more */
	return 0;
}
