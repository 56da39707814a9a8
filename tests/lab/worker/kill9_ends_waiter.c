// SPDX-License-Identifier: GPL-2.0-only
/* kill -9 ends a process that waits for a request which no worker serves. */
#include "kill9.h"

static void body(void)
{
	struct ring ring = worker_ring_open(4);

	ring_queue(&ring, 0, SYS_getpid);
	kill9_say_ready();
	ring_wait(&ring, 1, 0);
}

int main(void)
{
	check_kill9_ends(body);
	return 0;
}
