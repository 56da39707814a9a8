/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The headers stand alone in strict C11, in either order and twice, and bring the numbers of calls.
 * It tests no behaviour.
 */
#include <linux/trapless.h>
#include <trapless.h>
#include <linux/trapless.h>
#include <trapless.h>
#include <trapless_typed.h>
#include <trapless_typed.h>

int main(void)
{
	_Static_assert(SYS_close > 0, "a call has a number");
	_Static_assert(sizeof(struct tl_request) == 64, "a request is one cache line");
	return 0;
}
