/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The rows of <linux/trapless_calls.h> as an array, for tests that loop over all of them.
 */
#ifndef TL_TEST_CALLS_H
#define TL_TEST_CALLS_H

#include <stddef.h>
#include <stdint.h>

enum call_class { CALL_ANY, CALL_NULL_MASK, CALL_SELF_VALUE, CALL_BATCH_ONLY, CALL_REFUSED };

struct call {
	uint32_t nr;
	enum call_class class;
	const char *name;
};

#define TL_ANY(name, nr) { nr, CALL_ANY, #name },
#define TL_NULL_MASK(name, nr, argument, why) { nr, CALL_NULL_MASK, #name },
#define TL_SELF_VALUE(name, nr, argument, bits, value, why) { nr, CALL_SELF_VALUE, #name },
#define TL_BATCH_ONLY(name, nr, why) { nr, CALL_BATCH_ONLY, #name },
#define TL_REFUSED(name, nr, why) { nr, CALL_REFUSED, #name },
static const struct call calls[] = {
#include <linux/trapless_calls.h>
#undef TL_ANY
#undef TL_NULL_MASK
#undef TL_SELF_VALUE
#undef TL_BATCH_ONLY
#undef TL_REFUSED
};

#define CALLS_COUNT (sizeof(calls) / sizeof(*calls))

/* NULL where the table has no row. */
static inline const struct call *call_find(uint32_t nr)
{
	for (size_t i = 0; i < CALLS_COUNT; i++)
		if (calls[i].nr == nr)
			return &calls[i];
	return NULL;
}

#endif /* TL_TEST_CALLS_H */
