// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Gives the sampler plans and memory from the bytes of a fuzzer: first the text of a plan up to a
 * zero byte, then what is in memory. Pointers in that memory are the guest's own. It is built with
 * libFuzzer and sanitizers by observer_fuzz.py, which runs it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "sample.h"
#include "source.h"

struct bytes {
	const uint8_t *data;
	size_t length;
};

static int bytes_read(struct source *source, uint64_t physical, void *into, size_t length)
{
	const struct bytes *bytes = source->state;

	if (physical > bytes->length || length > bytes->length - physical)
		return -EFAULT;
	memcpy(into, bytes->data + physical, length);
	return 0;
}

static const struct source_kind source_bytes = { .name = "bytes", .read = bytes_read };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t length = strnlen((const char *)data, size);
	struct bytes bytes = { data + length, size - length };
	struct source source = { .kind = &source_bytes, .state = &bytes, .size = bytes.length };
	struct plan *plan = malloc(sizeof(*plan));
	char error[PLAN_ERROR_BYTES];

	if (!plan)
		return 0;
	if (!plan_parse(plan, (const char *)data, length, error)) {
		/* As large as the plan says, and no larger: the sanitizer sees a byte beyond it. */
		uint8_t *row = malloc(plan->data_bytes);
		struct row head = { 0 };

		if (row)
			sample_take(plan, &source, &head, row);
		free(row);
	}
	free(plan);
	return 0;
}
