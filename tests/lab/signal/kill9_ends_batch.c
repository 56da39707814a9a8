// SPDX-License-Identifier: GPL-2.0-only
/* kill -9 in the middle of a batch of long sleeps ends the process at once. */
#include "kill9.h"

static void body(void)
{
	struct ring ring = ring_open(128);
	struct timespec pause = { .tv_sec = 100 };

	for (unsigned int slot = 0; slot < 128; slot++)
		ring_put(&ring, slot, SYS_nanosleep, &pause, NULL);
	kill9_say_ready();
	ring_batch(&ring, 0, 128);
}

int main(void)
{
	check_kill9_ends(body);
	return 0;
}
