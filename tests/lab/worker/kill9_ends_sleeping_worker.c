// SPDX-License-Identifier: GPL-2.0-only
/* kill -9 ends a process whose main thread is a worker asleep for want of requests. */
#include "kill9.h"

static void body(void)
{
	struct ring ring = worker_ring_open(4);

	kill9_say_ready();
	ring_ioctl(&ring, TL_IOC_ENTER);
}

int main(void)
{
	check_kill9_ends(body);
	return 0;
}
