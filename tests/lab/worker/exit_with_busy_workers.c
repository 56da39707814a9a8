// SPDX-License-Identifier: GPL-2.0-only
/* A process exits while its workers sleep, spin and serve: it ends at once, with its status. */
#include "busy_workers.h"

static void body(void)
{
	busy_workers_start();
	_exit(7);
}

int main(void)
{
	for (int i = 0; i < 10; i++) {
		uint64_t begin_ms = now_ms();

		CHECK_EXITED(child_run(body), 7);
		CHECK(now_ms() - begin_ms < WAIT_MS);
	}
	return 0;
}
