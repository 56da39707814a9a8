// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Open descriptors, one bit each.
 */
#include "descriptors.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool tln_descriptors_add(struct descriptors *descriptors, int fd)
{
	size_t word = (size_t)fd / 64, words = 2 * word + 1;

	if (word >= descriptors->words) {
		uint64_t *grown = realloc(descriptors->bits, words * sizeof(*grown));

		if (!grown)
			return false;
		memset(grown + descriptors->words, 0,
		       (words - descriptors->words) * sizeof(*grown));
		descriptors->bits = grown;
		descriptors->words = words;
	}
	descriptors->bits[word] |= 1ull << fd % 64;
	return true;
}

void tln_descriptors_remove(struct descriptors *descriptors, int fd)
{
	if (fd >= 0 && (size_t)fd / 64 < descriptors->words)
		descriptors->bits[fd / 64] &= ~(1ull << fd % 64);
}

void tln_descriptors_close(struct descriptors *descriptors)
{
	for (size_t fd = 0; fd < 64 * descriptors->words; fd++)
		if (descriptors->bits[fd / 64] & 1ull << fd % 64)
			close((int)fd);
	free(descriptors->bits);
}
