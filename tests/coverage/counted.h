/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Loads a trapless.ko that counts what is reached, and reads its counters by trapless_counters.ko.
 * It owns no meaning of a counter. Errors end the program: without counters there is nothing to do.
 */
#ifndef TL_COVERAGE_COUNTED_H
#define TL_COVERAGE_COUNTED_H

#include <linux/trapless.h>

#include "check.h"

#define COUNTED_MODULE "/trapless.ko"
#define COUNTED_READER "/trapless_counters.ko"
#define COUNTED_DEVICE "/dev/trapless_counters"
#define COUNTED_MAX 65536

/* Loads a module and waits for its device, which devtmpfs makes some time later. */
static inline void counted_load(const char *file, const char *parameters, const char *device)
{
	int fd = MUST(open(file, O_RDONLY | O_CLOEXEC));
	long error = sys(SYS_finit_module, fd, parameters, 0);

	close(fd);
	if (error)
		FAIL("%s '%s': %s", file, parameters, strerror((int)-error));
	WAIT_UNTIL(access(device, F_OK) == 0, "no %s after %d ms", device, WAIT_MS);
}

static inline int counted_open(void)
{
	counted_load(COUNTED_READER, "", COUNTED_DEVICE);
	return MUST(open(COUNTED_DEVICE, O_RDONLY | O_CLOEXEC));
}

/* Returns how many there are. */
static inline size_t counted_read(int fd, uint64_t *counters)
{
	size_t got = 0;
	ssize_t n;

	MUST(lseek(fd, 0, SEEK_SET));
	while ((n = MUST(read(fd, (char *)counters + got, COUNTED_MAX * 8 - got))) > 0)
		got += (size_t)n;
	return got / 8;
}

#endif /* TL_COVERAGE_COUNTED_H */
