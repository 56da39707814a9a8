/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the sampler's unit tests share: memory in a file that the test writes to and the sampler
 * reads, and plans in a line of C. It owns no assertion.
 */
#ifndef TL_UNIT_SAMPLER_MEMORY_H
#define TL_UNIT_SAMPLER_MEMORY_H

#include <sys/mman.h>

#include "check.h"
#include "plan.h"
#include "sample.h"
#include "source.h"

struct memory {
	int file;
	uint8_t *bytes;		/* as the target sees it */
	size_t size;
	char path[64];		/* for the sampler */
};

static inline struct memory memory_new(size_t size)
{
	struct memory memory = { .size = size };

	memory.file = memfd_create("target", 0);
	CHECK(memory.file >= 0);
	CHECK_EQ(ftruncate(memory.file, (off_t)size), 0);
	memory.bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.file, 0);
	CHECK(memory.bytes != MAP_FAILED);
	snprintf(memory.path, sizeof(memory.path), "ram:/proc/self/fd/%d", memory.file);
	return memory;
}

static inline struct source source_of(const char *text)
{
	struct source source;
	char error[SOURCE_ERROR_BYTES] = "";

	if (source_open(&source, text, error))
		FAIL("%s: %s", text, error);
	return source;
}

static inline struct plan *plan_of(const char *text)
{
	struct plan *plan = malloc(sizeof(*plan));
	char error[PLAN_ERROR_BYTES] = "";

	CHECK(plan);
	if (plan_parse(plan, text, strlen(text), error))
		FAIL("%s", error);
	return plan;
}

#endif
