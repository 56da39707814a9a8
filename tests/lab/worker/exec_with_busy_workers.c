// SPDX-License-Identifier: GPL-2.0-only
/* A process executes a program while its workers sleep, spin and serve: the program runs. */
#include "busy_workers.h"

static void body(void)
{
	busy_workers_start();
	exec_stage("after");
}

int main(void)
{
	if (!strcmp(test_stage(), "after"))
		_exit(9);
	for (int i = 0; i < 5; i++)
		CHECK_EXITED(child_run(body), 9);
	return 0;
}
