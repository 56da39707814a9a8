/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Facts that go into the model's rows beside counts: an empty region each, whose label holds the
 * number. So one file says all about a run.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "marker.h"
#include "stat.h"

#define LABEL_FACT 15u
#define VALUE_BITS 48

void stat_fail(const char *format, ...)
{
	va_list values;

	va_start(values, format);
	fputs("trapless stat: ", stderr);
	vfprintf(stderr, format, values);
	fputc('\n', stderr);
	va_end(values);
	exit(STATUS_FAILED);
}

void fact(unsigned int which, uint64_t value)
{
	value &= (1ull << VALUE_BITS) - 1;
	tl_model_label(value << 16 | (uint64_t)which << 4 | LABEL_FACT);
	tl_model_begin();
	tl_model_end();
}
