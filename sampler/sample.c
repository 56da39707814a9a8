// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Takes one sample. It owns the meaning of torn and absent. The target runs while it is read, so a
 * group may change between the reads of its fields; the group's rule says how that is noticed. A
 * group is read again at most TRIES_MAX times; then it is torn, and the sampler goes on.
 */
#include "sample.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static int follow(const struct plan *plan, struct source *source, uint64_t at, uint64_t *pointer,
		  uint64_t step)
{
	uint64_t virtual;
	uint32_t i;
	int status = source_read(source, at, &virtual, sizeof(virtual));

	if (status)
		return status;
	for (i = 0; i < plan->bases; i++) {
		uint64_t into = virtual + step - plan->base[i].virtual;

		if (into < plan->base[i].length) {
			*pointer = plan->base[i].physical + into;
			return 0;
		}
	}
	return -EFAULT;
}

static int read_field(const struct plan *plan, struct source *source, const struct field *field,
		      uint8_t *into)
{
	uint64_t at = field->address;
	int status = 0;
	uint32_t i;

	for (i = 0; !status && i < field->steps; i++)
		status = follow(plan, source, at, &at, field->step[i]);
	if (!status)
		status = source_read(source, at, into, field->bytes);
	if (status == -EFAULT)
		memset(into, 0, field->bytes);
	return status;
}

/* Reads all fields of a group into `into`. Sets *absent where one cannot be read. */
static int read_fields(const struct plan *plan, struct source *source, const struct group *group,
		       uint8_t *into, bool *absent)
{
	uint32_t i;

	for (i = group->first; i < group->end; i++) {
		const struct field *field = &plan->field[i];
		int status = read_field(plan, source, field, into + (field->at - group->at));

		if (status == -ENODEV)
			return status;
		*absent |= status != 0;
	}
	return 0;
}

/* The compiler must keep the order of the reads; the processor (x86) keeps that of its loads. */
static inline void in_order(struct source *source)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	source_begin_pass(source);
}

/* Reads a group once, by its rule; *same says whether nothing changed meanwhile. */
static int try_group(const struct plan *plan, struct source *source, const struct group *group,
		     uint8_t *data, bool *same, bool *absent)
{
	uint8_t again[ROW_BYTES_MAX];
	uint32_t before = 0, after = 0;
	bool lacking = false;
	int status = 0;

	source_begin_pass(source);
	if (group->rule == RULE_SEQLOCK)
		status = source_read(source, group->seq1, &before, sizeof(before));
	in_order(source);
	if (!status)
		status = read_fields(plan, source, group, data + group->at, absent);
	in_order(source);
	*same = true;
	if (!status && group->rule == RULE_SEQLOCK) {
		status = source_read(source, group->seq0, &after, sizeof(after));
		*same = before == after;
	} else if (!status && group->rule == RULE_STABLE) {
		status = read_fields(plan, source, group, again, &lacking);
		*same = !memcmp(again, data + group->at, group->bytes);
	}
	if (status == -EFAULT) {	/* a counter cannot be read */
		*absent = true;
		status = 0;
	}
	return status;
}

int sample_take(const struct plan *plan, struct source *source, struct row *row, uint8_t *data)
{
	uint32_t i;

	for (i = 0; i < plan->groups; i++) {
		bool same = false, absent = false;
		unsigned int tries = 0;

		while (!same && tries < TRIES_MAX) {
			int status;

			absent = false;
			status = try_group(plan, source, &plan->group[i], data, &same, &absent);
			if (status)
				return status;
			tries++;
		}
		row->retries += tries - 1;
		row->torn |= (uint64_t)!same << i;
		row->absent |= (uint64_t)absent << i;
	}
	row->flags |= (row->torn ? ROW_TORN : 0) | (row->absent ? ROW_ABSENT : 0);
	return 0;
}
