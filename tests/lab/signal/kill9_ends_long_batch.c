/* SPDX-License-Identifier: GPL-2.0-only */
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
	uint64_t best_ms = UINT64_MAX;

	MUST(pipe(kill9_ready));
	for (int i = 0; kill9_again(i, best_ms); i++) {
		pid_t pid = child_start(body);
		uint64_t begin_ms;
		char byte;

		CHECK_EQ(read(kill9_ready[0], &byte, 1), 1);
		sleep_ms(20);
		begin_ms = now_ms();
		MUST(kill(pid, SIGKILL));
		CHECK_KILLED(child_wait(pid), SIGKILL);
		if (now_ms() - begin_ms < best_ms)
			best_ms = now_ms() - begin_ms;
	}
	CHECK_WITHIN(best_ms, 0, KILL9_BOUND_MS);
	return 0;
}
