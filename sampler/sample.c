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

/* The physical address of what a pointer leads to. */
static int follow(const struct plan *plan, uint64_t virtual, uint64_t *pointer, uint64_t step)
{
	uint32_t i;

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
	uint64_t at = field->address, virtual;
	int status = 0;
	uint32_t i;

	for (i = 0; !status && i < field->steps; i++) {
		status = source_read(source, at, &virtual, sizeof(virtual));
		if (!status)
			status = follow(plan, virtual, &at, field->step[i]);
	}
	if (!status)
		status = source_read(source, at, into, field->bytes);
	if (status == -EFAULT)
		memset(into, 0, field->bytes);
	return status;
}

/* A field that is read together with others: where it is in its chain of pointers. */
struct progress {
	const struct field *field;
	uint64_t at, virtual;
	uint32_t step;
};

static struct source_place next_place(struct progress *one, uint8_t *row)
{
	if (one->step == one->field->steps)
		return (struct source_place){ one->at, row + one->field->at, one->field->bytes, 0 };
	return (struct source_place){ one->at, &one->virtual, sizeof(one->virtual), 0 };
}

/*
 * Reads all fields at once, and after that what their pointers lead to, at once again: each round
 * takes as long as one read.
 */
static int read_together(const struct plan *plan, struct source *source, const struct group *group,
			 uint8_t *into, bool *absent)
{
	struct source_place place[FIELDS_MAX];
	struct progress left[FIELDS_MAX];
	size_t fields = 0, more, i;

	for (i = group->first; i < group->end; i++)
		left[fields++] = (struct progress){ .field = &plan->field[i],
						    .at = plan->field[i].address };
	for (; fields; fields = more) {
		for (i = 0; i < fields; i++)
			place[i] = next_place(&left[i], into - group->at);
		if (source->kind->read_together(source, place, fields))
			return -ENODEV;
		for (i = more = 0; i < fields; i++) {
			struct progress one = left[i];
			bool last = one.step == one.field->steps;
			int status = place[i].status;

			if (!status && !last)
				status = follow(plan, one.virtual, &one.at,
						one.field->step[one.step++]);
			if (status)
				memset(into + (one.field->at - group->at), 0, one.field->bytes);
			else if (!last)
				left[more++] = one;
			*absent |= status != 0;
		}
	}
	return 0;
}

/* Reads all fields of a group into `into`. Sets *absent where one cannot be read. */
static int read_fields(const struct plan *plan, struct source *source, const struct group *group,
		       uint8_t *into, bool *absent)
{
	uint32_t i;

	if (source->kind->read_together)
		return read_together(plan, source, group, into, absent);
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
