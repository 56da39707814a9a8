// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The list of system calls that may be wrapped, and the plain execution of one. It owns the
 * look-up. The rows are those of the module (linux/trapless_calls.h), so that a program gets the
 * same answer with and without the module. The order of several requests is the business of
 * batch.c, program.c and psc/worker.c.
 */
#include "internal.h"
#include "enter.h"

#include <errno.h>

struct row {
	const char *name;	/* NULL: no such row */
	const char *reason;
	enum tl_call_class class;
	uint8_t argument;	/* that the class is about */
	uint32_t bits, value;	/* of it, with TL_CALL_SELF_VALUE */
};

#define TL_ANY(name, nr) [nr] = { #name, "", TL_CALL_ANY, 0, 0, 0 },
#define TL_NULL_MASK(name, nr, argument, why) \
	[nr] = { #name, why, TL_CALL_NULL_MASK, argument, 0, 0 },
#define TL_SELF_VALUE(name, nr, argument, bits, value, why) \
	[nr] = { #name, why, TL_CALL_SELF_VALUE, argument, bits, value },
#define TL_BATCH_ONLY(name, nr, why) [nr] = { #name, why, TL_CALL_BATCH, 0, 0, 0 },
#define TL_REFUSED(name, nr, why) [nr] = { #name, why, TL_CALL_REFUSED, 0, 0, 0 },
static const struct row rows[] = {
#include <linux/trapless_calls.h>
};
#undef TL_ANY
#undef TL_NULL_MASK
#undef TL_SELF_VALUE
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

/* May the call be made with these arguments? The row has the class `least` or a higher one. */
static bool arguments_are_allowed(const struct row *row, const __u64 *args,
				  enum tl_call_class least)
{
	if (row->class == TL_CALL_NULL_MASK)
		return !args[row->argument];
	if (row->class == TL_CALL_SELF_VALUE && least > TL_CALL_BATCH)
		return ((uint32_t)args[row->argument] & row->bits) != row->value;
	return true;
}

bool tl_plain_execute(struct tl_request *request, enum tl_call_class least)
{
	int class = tl_call_lookup(request->nr);
	const __u64 *args = request->args;
	bool made = class >= (int)least &&
		    arguments_are_allowed(&rows[request->nr], args, least);

	if (made)
		request->result = raw_syscall((long)request->nr, args[0], args[1], args[2], args[3],
					args[4], args[5]);
	else
		request->result = class < 0 ? class : -EOPNOTSUPP;
	return made;
}

void tl_plain_complete(struct tl_request *request)
{
	/* Pairs with the acquire of a thread that looks for TL_DONE before it reads the result. */
	__atomic_store_n(&request->state, TL_DONE, __ATOMIC_RELEASE);
}
