// SPDX-License-Identifier: GPL-2.0-only
/*
 * A load that computes: sorts floating-point numbers by the C library's qsort, and proves that it
 * has. It makes next to no system calls, and reaches all over its memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"

#define BYTES_MAX (1u << 30)
#define SEED 20030115u

/* A sum that every order of the same numbers has in common. */
struct digest {
	uint64_t sum, mixed;
};

static struct digest digest_of(const double *numbers, size_t count)
{
	struct digest digest = { 0, 0 };
	uint64_t bits;

	for (size_t i = 0; i < count; i++) {
		memcpy(&bits, &numbers[i], sizeof(bits));
		digest.sum += bits;
		digest.mixed ^= bits * 0x9e3779b97f4a7c15u;
	}
	return digest;
}

static int by_value(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;

	return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
	struct digest before, after;
	double *numbers;
	size_t count;

	if (argc != 2)
		measure_fail("usage: sort BYTES");
	count = measure_parse_number("BYTES", argv[1], BYTES_MAX) / sizeof(*numbers);
	numbers = malloc(count * sizeof(*numbers));
	if (!count || !numbers)
		measure_fail("no room for %zu numbers", count);
	measure_seed(SEED);
	for (size_t i = 0; i < count; i++)
		numbers[i] = (double)(int64_t)measure_random();
	before = digest_of(numbers, count);
	qsort(numbers, count, sizeof(*numbers), by_value);
	after = digest_of(numbers, count);
	for (size_t i = 1; i < count; i++)
		if (numbers[i - 1] > numbers[i])
			measure_fail("numbers %zu and %zu are not in order", i - 1, i);
	if (after.sum != before.sum || after.mixed != before.mixed)
		measure_fail("these are not the numbers that were to be sorted");
	printf("{\"check\": \"sort: in order, and the same numbers\", \"made\": %zu}\n", count);
	free(numbers);
	return 0;
}
