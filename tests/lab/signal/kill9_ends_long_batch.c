// SPDX-License-Identifier: GPL-2.0-only
/* kill -9 ends a process that runs a batch of many calls without any sleep in it. */
#include "kill9.h"

static void body(void)
{
	static char bytes[1 << 20];
	struct ring ring = ring_open(TL_ENTRIES_MAX);
	int fd = MUST(open("/dev/zero", O_RDONLY));

	for (unsigned int slot = 0; slot < TL_ENTRIES_MAX; slot++)
		ring_put(&ring, slot, SYS_read, fd, bytes, sizeof(bytes));
	kill9_say_ready();
	for (;;)
		ring_batch(&ring, 0, TL_ENTRIES_MAX);
}

int main(void)
{
	check_kill9_ends_after(body, kill9_wait_busy);
	return 0;
}
