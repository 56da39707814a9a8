// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * plain.c - one request, executed by one plain system call. It owns what "the same result without
 * the module" means for a single request; the order of several is batch.c's and psc.c's business.
 */
#include "internal.h"
#include "door.h"

#include <errno.h>

bool tl_plain_execute(struct tl_request *request, enum tl_call_class least)
{
	int class = tl_call_lookup(request->nr);
	bool made = class >= (int)least;
	const __u64 *args = request->args;

	if (made)
		request->result = call6((long)request->nr, args[0], args[1], args[2], args[3],
					args[4], args[5]);
	else
		request->result = class < 0 ? class : -EOPNOTSUPP;
	return made;
}

void tl_plain_complete(struct tl_request *request)
{
	/* Pairs with the acquire of whoever looks for TL_DONE before the result. */
	__atomic_store_n(&request->state, TL_DONE, __ATOMIC_RELEASE);
}
