// SPDX-License-Identifier: GPL-2.0-only
/*
 * The attack: as uid 1000 batch [execve(set-uid program), fchown(fd, 0, 0), fchmod(fd, 04755)].
 * Were execve executed, the rest of the batch would run as root and leave a root-owned set-uid
 * file. It is refused, and the rest fails or works as it does for uid 1000.
 */
#include <sys/stat.h>

#include "ring.h"

#define DIRECTORY "/tmp/tl-suid"

static void copy_self(const char *path, mode_t mode)
{
	static char bytes[65536];
	int from = MUST(open("/proc/self/exe", O_RDONLY));
	int to = MUST(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0755));
	ssize_t n;

	while ((n = read(from, bytes, sizeof(bytes))) > 0)
		CHECK_EQ(write(to, bytes, (size_t)n), n);
	MUST(fchmod(to, mode));
	close(from);
	close(to);
}

static void attack(void)
{
	static char *const arguments[] = { "batch_with_execve_is_refused", NULL };
	static char *const environment[] = { "TL_TEST_STAGE=root", NULL };
	struct ring ring;
	int fd;

	MUST(setgid(1000));
	MUST(setuid(1000));
	fd = MUST(open(DIRECTORY "/mine", O_RDWR | O_CREAT, 0755));
	ring = ring_open(4);
	ring_put(&ring, 0, SYS_execve, DIRECTORY "/suid", arguments, environment);
	ring_put(&ring, 1, SYS_fchown, fd, 0, 0);
	ring_put(&ring, 2, SYS_fchmod, fd, 04755);
	ring_put(&ring, 3, SYS_execveat, AT_FDCWD, DIRECTORY "/suid", arguments, environment, 0);
	CHECK_EQ(ring_batch(&ring, 0, 4), 4);
	CHECK_DONE(&ring, 0, -EOPNOTSUPP);
	CHECK_DONE(&ring, 1, -EPERM);
	CHECK_DONE(&ring, 2, 0);
	CHECK_DONE(&ring, 3, -EOPNOTSUPP);
}

int main(void)
{
	struct stat status;

	if (!strcmp(test_stage(), "root"))
		return 42;	/* the set-uid program ran */
	if (geteuid() != 0)
		SKIP("needs root to make a set-uid file");
	MUST(mkdir(DIRECTORY, 0777));
	MUST(chmod(DIRECTORY, 0777));
	copy_self(DIRECTORY "/suid", 04755);
	CHECK_EXITED(child_run(attack), 0);
	MUST(stat(DIRECTORY "/mine", &status));
	CHECK_EQ(status.st_uid, 1000);
	unlink(DIRECTORY "/mine");
	unlink(DIRECTORY "/suid");
	rmdir(DIRECTORY);
	return 0;
}
