// SPDX-License-Identifier: GPL-2.0-only
/*
 * The corpus of programs and the ways to change one.
 */
#include "mutate.h"

#define FRESH_ONE_IN 12		/* programs that are made from nothing */
#define FRESH_BYTES 96
#define HEADER_ONE_IN 4		/* programs whose kind is chosen anew */
#define CHANGES_MAX 6

void corpus_add(struct corpus *corpus, const struct input *input)
{
	if (corpus->count < CORPUS_MAX)
		corpus->inputs[corpus->count++] = *input;
}

static void fill(struct input *input, uint32_t at, uint32_t n, struct random *random)
{
	while (n-- && at < INPUT_MAX)
		input->bytes[at++] = (uint8_t)random_next(random);
}

static void insert(struct input *input, uint32_t at, const uint8_t *bytes, uint32_t n,
		   struct random *random)
{
	if (n > INPUT_MAX - input->length)
		n = INPUT_MAX - input->length;
	memmove(input->bytes + at + n, input->bytes + at, input->length - at);
	if (bytes)
		memmove(input->bytes + at, bytes, n);
	else
		fill(input, at, n, random);
	input->length += n;
}

static void erase(struct input *input, uint32_t at, uint32_t n)
{
	if (n > input->length - at)
		n = input->length - at;
	memmove(input->bytes + at, input->bytes + at + n, input->length - at - n);
	input->length -= n;
}

static void change(struct input *input, const struct input *other, struct random *random)
{
	uint32_t at = random_below(random, input->length), from, n = random_below(random, 16) + 1;

	switch (random_below(random, 8)) {
	case 0:
	case 1:
		input->bytes[at] = (uint8_t)random_next(random);
		break;
	case 2:
		input->bytes[at] ^= (uint8_t)(1u << random_below(random, 8));
		break;
	case 3:
		insert(input, at, NULL, n, random);
		break;
	case 4:
		erase(input, at, n * 4);
		break;
	case 5:
		fill(input, at, n, random);
		if (at + n > input->length)
			input->length = at + n < INPUT_MAX ? at + n : INPUT_MAX;
		break;
	default:
		if (!other->length)
			break;
		from = random_below(random, other->length);
		n = random_below(random, other->length - from) + 1;
		insert(input, at, other->bytes + from, n, random);
	}
}

struct input corpus_mutate(const struct corpus *corpus, struct random *random)
{
	struct input input = { 0 }, other;

	if (!corpus->count || random_below(random, FRESH_ONE_IN) == 0) {
		input.length = random_below(random, FRESH_BYTES) + 8;
		fill(&input, 0, input.length, random);
		return input;
	}
	/* What was found last is worth most. */
	input = corpus->inputs[random_below(random, 2) ? random_below(random, corpus->count) :
			       corpus->count - 1 - random_below(random, corpus->count) / 4];
	other = corpus->inputs[random_below(random, corpus->count)];
	if (input.length && random_below(random, HEADER_ONE_IN) == 0)
		input.bytes[0] = (uint8_t)random_next(random);
	for (uint32_t i = random_below(random, CHANGES_MAX) + 1; i; i--)
		if (input.length)
			change(&input, &other, random);
	return input;
}
