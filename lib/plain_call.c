// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * plain_call.c - executes one request by one plain system call, with the result that the module
 * would give. The order of several requests is the business of batch.c and psc_worker.c.
 */
#include "internal.h"
#include "enter.h"

#include <errno.h>

bool tl_plain_execute(struct tl_request *request, enum tl_call_class least)
{
	int class = tl_call_lookup(request->nr);
	bool made = class >= (int)least;
	const __u64 *args = request->args;

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
