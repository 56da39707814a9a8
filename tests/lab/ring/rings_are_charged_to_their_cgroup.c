// SPDX-License-Identifier: GPL-2.0-only
/* The memory of rings counts against the limit of the group that their process is in. */
#include "cgroup.h"
#include "ring.h"

#define RINGS 40
#define BATCH_BYTES TL_RING_BYTES(TL_ENTRIES_MAX)
#define LIMIT "4194304"		/* bytes: room for about 15 of these rings */

static void make_rings(void)
{
	int made = 0;

	cgroup_enter();
	while (made < RINGS) {
		int fd = device_open();
		long error = device_setup(fd, TL_ENTRIES_MAX, 0, 0);

		if (error) {
			CHECK_EQ(error, -ENOMEM);
			break;
		}
		made++;
	}
	CHECK(made * (long)BATCH_BYTES <= atol(LIMIT));
	_exit(made ? 0 : EXIT_FAIL);
}

int main(void)
{
	int status;

	cgroup_make(LIMIT);
	status = child_run(make_rings);
	/* Over its limit the group's process is told -ENOMEM, or killed for it. */
	if (WIFSIGNALED(status))
		CHECK_KILLED(status, SIGKILL);
	else
		CHECK_EXITED(status, 0);
	cgroup_remove();
	return 0;
}
