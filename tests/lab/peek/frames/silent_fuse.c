// SPDX-License-Identifier: GPL-2.0-only
/*
 * A FUSE file system whose program answers that it is there, and then nothing any more. It is
 * mounted at the argument, and ends with the program.
 */
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static char request[1 << 17];
	char options[64];
	int device = open("/dev/fuse", O_RDWR);
	struct {
		struct fuse_out_header head;
		struct fuse_init_out body;
	} answer = { .head = { .len = sizeof(answer) }, .body = { .major = 7, .minor = 31 } };

	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
	if (argc != 2 || device < 0 || mount("none", argv[1], "fuse", 0, options))
		return 1;
	if (read(device, request, sizeof(request)) < 0)
		return 1;
	answer.head.unique = ((struct fuse_in_header *)request)->unique;
	answer.body.max_write = 4096;
	if (write(device, &answer, sizeof(answer)) < 0)
		return 1;
	pause();
	return 0;
}
