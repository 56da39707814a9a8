// SPDX-License-Identifier: GPL-2.0-only
/*
 * A program that closes the library's descriptor, or whose next file has its number, switches all
 * the same; that file is left alone, and no descriptor is opened twice.
 */
#include "lib_supervisor.h"

static void check_works(void)
{
	CHECK_EQ(tl_switch_supervisor(0), 0);
	CHECK_WITHIN(calls_inside(), MOST_CALLS, CALLS);
	CHECK_EQ(tl_switch_user(0), 0);
	CHECK_EQ(calls_inside(), 0);
}

int main(void)
{
	int fd = -1, other = MUST(open("/dev/null", O_RDWR)), pipes[2];
	char byte = 0;

	lib_supervisor_need();
	CHECK_EQ(device_descriptors(&fd), 1);
	CHECK_EQ(MUST(fcntl(fd, F_GETFD)), FD_CLOEXEC);

	close(fd);
	check_works();
	CHECK_EQ(device_descriptors(&fd), 1);

	MUST(dup2(other, fd));
	check_works();
	CHECK_EQ(device_descriptors(&fd), 1);

	MUST(pipe(pipes));
	close(other);
	other = fd;
	MUST(dup2(pipes[1], other));
	for (int i = 0; i < 10; i++)
		check_works();
	CHECK_EQ(device_descriptors(NULL), 1);
	CHECK_EQ(MUST(write(other, "x", 1)), 1);
	CHECK_EQ(MUST(read(pipes[0], &byte, 1)), 1);
	CHECK_EQ(byte, 'x');
	return 0;
}
