// SPDX-License-Identifier: GPL-2.0-only
/* A descriptor that survives exec does not let the new program use the old one's ring. */
#include "ring.h"

int main(void)
{
	char number[16];
	struct ring ring;
	int fd;

	if (!strcmp(test_stage(), "after")) {
		fd = atoi(getenv("TL_TEST_FD"));
		CHECK(fcntl(fd, F_GETFD) >= 0);
		CHECK_EQ(enter_at(fd, NULL, 1, TL_ENTER_BATCH), -EPERM);
		CHECK_EQ((long)device_map(fd, 8), -EPERM);
		return 0;
	}
	ring = ring_open(8);
	CHECK_EQ(batch_call(&ring, SYS_getpid), getpid());
	MUST(fcntl(ring.fd, F_SETFD, 0));
	snprintf(number, sizeof(number), "%d", ring.fd);
	MUST(setenv("TL_TEST_FD", number, 1));
	exec_stage("after");
}
