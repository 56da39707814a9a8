// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writes facts into the model's rows beside the counts. Each fact is an empty region whose label
 * holds the number, so that one file says all about a run. It also owns the end of the program by
 * an error.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <trapless_model.h>

#include "guest_stat.h"

void stat_fail(const char *format, ...)
{
	va_list values;

	va_start(values, format);
	fputs("trapless stat: ", stderr);
	vfprintf(stderr, format, values);
	fputc('\n', stderr);
	va_end(values);
	exit(STAT_NOT_COUNTED);
}

void fact(unsigned int which, uint64_t value)
{
	value &= (1ull << STAT_VALUE_BITS) - 1;
	tl_model_label(value << STAT_VALUE_SHIFT | (uint64_t)which << STAT_FACT_SHIFT | STAT_FACT);
	tl_model_begin();
	tl_model_end();
}
