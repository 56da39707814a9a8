// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A plan means what it says; one that is not exactly of the form is refused with the line that is
 * wrong, whatever bytes it holds.
 */
#include "plan_memory.h"

static const char whole[] =
	"trapless-plan 1  # a comment\n"
	"interval-ns 100000\n"
	"duration-ns 5000000000\n"
	"cpu 1\n"
	"spin-ns 20000\n"
	"watch 77\n"
	"thread 78\n"
	"thread 79\n"
	"base 0xffff888000000000 0x40000000 0\n"
	"\n"
	"group cpu0 stable\n"
	"field preempt_count 4 0x1000\n"
	"field pid 4 0x1008 0x4d0\n"
	"group probe seqlock 0x203c 0x2000\n"
	"field where 8 0x2010\n"
	"field chain 2 0x1008 8 16 24 32\n";

static void means_what_it_says(void)
{
	struct plan *plan = plan_of(whole);

	CHECK_EQ(plan->interval_ns, 100000);
	CHECK_EQ(plan->duration_ns, 5000000000);
	CHECK_EQ(plan->cpu, 1);
	CHECK_EQ(plan->spin_ns, 20000);
	CHECK_EQ(plan->watch, 77);
	CHECK_EQ(plan->threads, 2);
	CHECK_EQ(plan->thread[1], 79);
	CHECK_EQ(plan->bases, 1);
	CHECK(plan->base[0].virtual == 0xffff888000000000);
	CHECK_EQ(plan->groups, 2);
	CHECK_EQ(plan->group[0].rule, RULE_STABLE);
	CHECK_EQ(plan->group[0].bytes, 8);
	CHECK_EQ(plan->group[1].rule, RULE_SEQLOCK);
	CHECK_EQ(plan->group[1].seq1, 0x203c);
	CHECK_EQ(plan->group[1].seq0, 0x2000);
	CHECK_EQ(plan->group[1].first, 2);
	CHECK_EQ(plan->group[1].end, 4);
	CHECK_EQ(plan->field[1].steps, 1);
	CHECK_EQ(plan->field[1].step[0], 0x4d0);
	CHECK_EQ(plan->field[3].steps, 4);
	CHECK_EQ(plan->field[3].at, 16);
	CHECK_EQ(plan->data_bytes, 18);
	CHECK(!strcmp(plan->field[3].name, "chain"));
	free(plan);
}

#define HEAD "trapless-plan 1\ninterval-ns 1000\ngroup g once\n"

static const struct {
	const char *text, *error;
} refused[] = {
	{ "", "line 1: the plan is empty" },
	{ "interval-ns 1000\n", "line 1: a plan begins with: trapless-plan 1" },
	{ "trapless-plan 2\n", "line 1: a plan begins with: trapless-plan 1" },
	{ "trapless-plan 1\ngroup g once\nfield f 4 0\n", "ends without interval-ns" },
	{ HEAD, "ends without a field" },
	{ HEAD "field f 4 0\ngroup h once\n", "group h is empty" },
	{ HEAD "field f 0 0\n", "line 4: 0 is not between 1 and 4096" },
	{ HEAD "field f 4097 0\n", "line 4: 4097 is not between 1 and 4096" },
	{ HEAD "field f 4 -1\n", "'-1' is not a number" },
	{ HEAD "field f 4 12monkeys\n", "'12monkeys' is not a number" },
	{ HEAD "field f 4 0x1ffffffffffffffff\n", "is not a number" },
	{ HEAD "field f 4 0 1 2 3 4 5\n", "line 4: more than 8 words" },
	{ HEAD "field f 4\n", "line 4: field with 3 words" },
	{ HEAD "interval-ns 1\n", "line 4: 1 is not between 1000 and" },
	{ HEAD "field f 4 0\nspin-ns 2000\n", "spin-ns is longer than interval-ns" },
	{ HEAD "group h seqlock\n", "line 4: a seqlock, and nothing else, has two addresses" },
	{ HEAD "group h stable 1 2\n", "line 4: a seqlock, and nothing else" },
	{ HEAD "group h sometimes\n", "line 4: 'sometimes' is no rule" },
	{ HEAD "thread 0\n", "line 4: 0 is not between 1" },
	{ HEAD "nonsense\n", "line 4: 'nonsense' is not known" },
	{ "trapless-plan 1\nfield f 4 0\n", "line 2: a field before any group" },
};

static void refuses_with_a_reason(void)
{
	static struct plan plan;
	size_t i;

	for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		char error[PLAN_ERROR_BYTES] = "";
		int status = plan_parse(&plan, refused[i].text, strlen(refused[i].text), error);

		if (status != -EINVAL || !strstr(error, refused[i].error))
			FAIL("%s: %d, %s", refused[i].text, status, error);
	}
}

static void stays_within_its_limits(void)
{
	static struct plan plan;
	char error[PLAN_ERROR_BYTES] = "", *text = malloc(1 << 20), *at = text;
	unsigned int i;

	CHECK(text);
	at += sprintf(at, HEAD);
	for (i = 0; i < FIELDS_MAX; i++)
		at += sprintf(at, "field f%u 8 %u\n", i, i * 8);
	CHECK_EQ(plan_parse(&plan, text, (size_t)(at - text), error), 0);
	sprintf(at, "field more 8 0\n");
	CHECK_EQ(plan_parse(&plan, text, strlen(text), error), -EINVAL);
	CHECK(strstr(error, "more than 512 fields"));
	at = text + sprintf(text, HEAD);
	for (i = 0; i < 17; i++)
		at += sprintf(at, "field f%u 4096 0\n", i);
	CHECK_EQ(plan_parse(&plan, text, strlen(text), error), -EINVAL);
	CHECK(strstr(error, "a row has more than"));
	free(text);
}

/* The sanitizers judge; what is taken must fit. */
static void survives_any_bytes(void)
{
	static struct plan plan;
	char text[sizeof(whole)], error[PLAN_ERROR_BYTES];
	unsigned int i, j;

	srandom(4);
	for (i = 0; i < 20000; i++) {
		memcpy(text, whole, sizeof(whole));
		for (j = 0; j < 1 + i % 6; j++)
			text[random() % (long)sizeof(text)] = (char)random();
		if (!plan_parse(&plan, text, (size_t)random() % sizeof(text), error))
			CHECK(plan.data_bytes <= ROW_BYTES_MAX && plan.fields <= FIELDS_MAX);
	}
}

int main(void)
{
	means_what_it_says();
	refuses_with_a_reason();
	stays_within_its_limits();
	survives_any_bytes();
	return 0;
}
