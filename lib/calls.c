// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * calls.c - the list of system calls that may be wrapped. It owns the look-up. The rows are those
 * of the module (linux/trapless_calls.h), so that a program gets the same answer with and without
 * the module.
 */
#include "internal.h"

#include <errno.h>

struct row {
	const char *name;	/* NULL: no such row */
	const char *reason;
	enum tl_call_class class;
};

#define TL_ANY(name, nr) [nr] = { #name, "", TL_CALL_ANY },
#define TL_BATCH_ONLY(name, nr, why) [nr] = { #name, why, TL_CALL_BATCH },
#define TL_REFUSED(name, nr, why) [nr] = { #name, why, TL_CALL_REFUSED },
static const struct row rows[] = {
#include <linux/trapless_calls.h>
};
#undef TL_ANY
#undef TL_BATCH_ONLY
#undef TL_REFUSED

#define ROWS (sizeof(rows) / sizeof(rows[0]))

int tl_call_lookup(uint32_t nr)
{
	if (nr >= ROWS || !rows[nr].name)
		return -ENOSYS;
	return (int)rows[nr].class;
}

int tl_call_get_class(uint32_t nr, const char **name, const char **reason)
{
	int class = tl_call_lookup(nr);

	if (class < 0)
		return class;
	if (name)
		*name = rows[nr].name;
	if (reason)
		*reason = rows[nr].reason;
	return class;
}
