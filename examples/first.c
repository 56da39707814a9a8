// SPDX-License-Identifier: MIT
/*
 * A first program, which makes three system calls by one crossing into the kernel.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <trapless.h>

int main(void)
{
	struct tl_batch *batch;
	struct stat root;

	if (tl_batch_create(&batch, 32, 0))
		return 1;
	int parent = TL_ADD(batch, SYS_getppid);
	int status = TL_ADD(batch, SYS_newfstatat, AT_FDCWD, "/", &root, 0);
	int closed = TL_ADD(batch, SYS_close, -1);
	int made = tl_batch_flush_all(batch);
	const char *reason = tl_batch_reason(batch);
	if (reason)
		printf("%d calls, one by one: %s\n", made, reason);
	else
		printf("%d calls, one crossing\n", made);
	printf("getppid: %ld\n", tl_batch_result(batch, parent));
	printf("stat /: %ld, inode %lu\n", tl_batch_result(batch, status), root.st_ino);
	printf("close -1: %ld\n", tl_batch_result(batch, closed));
	tl_batch_destroy(batch);
	return 0;
}
