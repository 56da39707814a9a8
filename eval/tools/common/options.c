// SPDX-License-Identifier: GPL-2.0-only
/*
 * See options.h. Nonsense ends the program with a message that names the value.
 */
#include "options.h"

bool options_take(struct options *options, int letter, const char *value, unsigned int size_max)
{
	switch (letter) {
	case 'k': options->kind = measure_parse_kind(value); return true;
	case 'c': options->calls = value; return true;
	case 'm': options->mechanisms = value; return true;
	case 'd': options->directory = value; return true;
	case 'p': options->polled = value; return true;
	case 'n':
		options->size_count = measure_parse_numbers(value, options->sizes, size_max);
		return true;
	case 'r':
		options->repeats = (unsigned int)measure_parse_number("--repeats", value,
								      OPTIONS_REPEATS_MAX);
		return true;
	case 's':
		options->seed = measure_parse_number("--seed", value, UINT32_MAX);
		return true;
	default:
		return false;
	}
}
