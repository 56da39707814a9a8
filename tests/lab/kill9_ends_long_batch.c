/* SPDX-License-Identifier: GPL-2.0-only */
/* kill -9 ends a process that runs a batch of many calls without any sleep in it. */
#include "ring.h"

static int ready[2];

static void body(void)
{
	static char bytes[1 << 20];
	struct ring ring = ring_open(TL_ENTRIES_MAX);
	int fd = MUST(open("/dev/zero", O_RDONLY));

	for (unsigned int slot = 0; slot < TL_ENTRIES_MAX; slot++)
		ring_put(&ring, slot, SYS_read, fd, bytes, sizeof(bytes));
	CHECK_EQ(write(ready[1], "r", 1), 1);
	for (;;)
		ring_batch(&ring, 0, TL_ENTRIES_MAX);
}

int main(void)
{
	uint64_t best_ms = UINT64_MAX;

	MUST(pipe(ready));
	for (int i = 0; i < 5; i++) {
		pid_t pid = child_start(body);
		uint64_t begin_ms;
		char byte;

		CHECK_EQ(read(ready[0], &byte, 1), 1);
		sleep_ms(20);
		begin_ms = now_ms();
		MUST(kill(pid, SIGKILL));
		CHECK_KILLED(child_wait(pid), SIGKILL);
		if (now_ms() - begin_ms < best_ms)
			best_ms = now_ms() - begin_ms;
	}
	CHECK_WITHIN(best_ms, 0, 100);
	return 0;
}
