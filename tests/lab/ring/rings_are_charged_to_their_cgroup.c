/* SPDX-License-Identifier: GPL-2.0-only */
/* The memory of rings counts against the limit of the group that their process is in. */
#include <sys/mount.h>
#include <sys/stat.h>

#include "ring.h"

#define GROUP "cgroup/trapless"
#define RINGS 40
#define BATCH_BYTES TL_RING_BYTES(TL_ENTRIES_MAX)
#define LIMIT "4194304"		/* bytes: room for about 15 of these rings */

static void make_rings(void)
{
	int made = 0;

	CHECK_EQ(write_file(GROUP "/cgroup.procs", "0"), 1);
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
	char text[64];
	int status;

	MUST(mkdir("cgroup", 0755));
	if (mount("cgroup", "cgroup", "cgroup2", 0, NULL) < 0)
		SKIP("no cgroup2: %s", strerror(errno));
	if (write_file("cgroup/cgroup.subtree_control", "+memory") < 0)
		SKIP("no memory controller");
	MUST(mkdir(GROUP, 0755));
	CHECK(write_file(GROUP "/memory.max", LIMIT) > 0);
	write_file(GROUP "/memory.swap.max", "0");
	status = child_run(make_rings);
	/* Over its limit the group's process is told -ENOMEM, or killed for it. */
	if (WIFSIGNALED(status))
		CHECK_KILLED(status, SIGKILL);
	else
		CHECK_EXITED(status, 0);
	CHECK(read_file(GROUP "/memory.max", text, sizeof(text)) > 0);
	for (uint64_t end = now_ms() + WAIT_MS; rmdir(GROUP) < 0 && now_ms() < end;)
		sleep_ms(10);
	MUST(umount2("cgroup", MNT_DETACH));
	rmdir("cgroup");
	return 0;
}
