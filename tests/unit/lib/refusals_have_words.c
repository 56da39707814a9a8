// SPDX-License-Identifier: GPL-2.0-only
/*
 * Every reason of the interface has words of its own; numbers that mean nothing have words, too,
 * and the same ones.
 */
#include "lib_check.h"

#define CODES 1024

int main(void)
{
	const char *unknown = tl_refusal_text((enum tl_refusal)(CODES - 1)), *text[CODES];
	unsigned int known = 0;

	CHECK(*unknown);
	for (unsigned int code = 0; code < CODES; code++) {
		text[code] = tl_refusal_text((enum tl_refusal)code);
		if (!strcmp(text[code], unknown))
			continue;
		known++;
		CHECK(*text[code]);
		for (unsigned int other = 0; other < code; other++)
			CHECK(strcmp(text[other], text[code]) != 0);
	}
	CHECK_EQ(known,
		 TL_REFUSALS_MACHINE + (TL_REFUSED_SHADOW_STACK - TL_REFUSED_NOT_CAPABLE + 1) + 1);
	CHECK_EQ(strcmp(text[TL_REFUSED_NONE], "not refused"), 0);
	CHECK_EQ(strcmp(tl_refusal_text((enum tl_refusal)-1), unknown), 0);
	return 0;
}
