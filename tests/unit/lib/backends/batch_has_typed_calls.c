// SPDX-License-Identifier: GPL-2.0-only
/*
 * The functions of trapless_typed.h make the calls that they are named after, each argument in its
 * place, and a call of a batch keeps the data that it was given.
 */
#include <dirent.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <trapless_typed.h>

#include "lib_check.h"

static struct tl_batch *batch;
static int folder;

/* Makes the calls that are queued; all of them succeed. Returns the last result. */
static int64_t made(void)
{
	uint32_t n = tl_batch_queued(batch);

	flush_all(batch);
	for (unsigned int slot = 0; slot < n; slot++)
		CHECK(tl_batch_result(batch, slot) >= 0);
	return tl_batch_result(batch, n - 1);
}

static int64_t one(int slot)
{
	CHECK_EQ(slot, 0);
	return made();
}

static void files_are_written_and_read(void)
{
	char text[16] = "", rest[8] = "";
	struct iovec part = { .iov_base = rest, .iov_len = 3 };
	off_t at = 1;
	struct stat stat;
	int fd, other;

	fd = (int)one(tl_add_openat(batch, folder, "file", O_RDWR | O_CREAT, 0640));
	CHECK_EQ(one(tl_add_write(batch, fd, "0123456789", 10)), 10);
	CHECK_EQ(one(tl_add_pwrite64(batch, fd, "ab", 2, 4)), 2);
	CHECK_EQ(one(tl_add_lseek(batch, fd, -8, SEEK_END)), 2);
	CHECK_EQ(one(tl_add_read(batch, fd, text, 5)), 5);
	CHECK(!strcmp(text, "23ab6"));
	CHECK_EQ(one(tl_add_readv(batch, fd, &part, 1)), 3);
	CHECK(!strcmp(rest, "789"));
	CHECK_EQ(one(tl_add_pread64(batch, fd, rest, 2, 8)), 2);
	CHECK(!strcmp(rest, "899"));
	tl_add_fallocate(batch, fd, 0, 0, 4096);
	tl_add_ftruncate(batch, fd, 6);
	tl_add_fadvise64(batch, fd, 0, 0, POSIX_FADV_WILLNEED);
	tl_add_fchmod(batch, fd, 0600);
	tl_add_fsync(batch, fd);
	tl_add_fstat(batch, fd, &stat);
	made();
	CHECK_EQ(stat.st_size, 6);
	CHECK_EQ(stat.st_mode, S_IFREG | 0600);
	other = (int)one(tl_add_memfd_create(batch, "copy", MFD_CLOEXEC));
	CHECK_EQ(one(tl_add_sendfile(batch, other, fd, &at, 3)), 3);
	CHECK_EQ(at, 4);
	CHECK_EQ(one(tl_add_dup3(batch, other, fd, O_CLOEXEC)), fd);
	CHECK_EQ(lseek(fd, 0, SEEK_CUR), 3);
	tl_add_close(batch, other);
	tl_add_close(batch, fd);
	made();
}

static void names_are_changed(void)
{
	struct timespec times[2] = { { 7, 0 }, { 9, 0 } };
	char target[16] = "", entries[1024];
	struct statx statx;
	struct stat stat;

	tl_add_linkat(batch, folder, "file", folder, "link", 0);
	tl_add_symlinkat(batch, "somewhere", folder, "symbolic");
	tl_add_readlinkat(batch, folder, "symbolic", target, sizeof(target));
	tl_add_mkdirat(batch, folder, "sub", 0750);
	tl_add_renameat2(batch, folder, "link", folder, "sub/moved", 1 /* RENAME_NOREPLACE */);
	tl_add_utimensat(batch, folder, "file", times, 0);
	tl_add_fchmodat(batch, folder, "file", 0444);
	tl_add_fchownat(batch, folder, "file", getuid(), getgid(), 0);
	tl_add_faccessat2(batch, folder, "file", R_OK, 0);
	tl_add_newfstatat(batch, folder, "file", &stat, AT_SYMLINK_NOFOLLOW);
	tl_add_statx(batch, folder, "symbolic", AT_SYMLINK_NOFOLLOW, STATX_MODE, &statx);
	made();
	CHECK(!strcmp(target, "somewhere"));
	CHECK_EQ(stat.st_mode, S_IFREG | 0444);
	CHECK_EQ(stat.st_nlink, 2);
	CHECK_EQ(stat.st_atime, 7);
	CHECK_EQ(stat.st_mtime, 9);
	CHECK(S_ISLNK(statx.stx_mode));
	CHECK(one(tl_add_getdents64(batch, folder, entries, sizeof(entries))) > 4 * 24);
	tl_add_unlinkat(batch, folder, "sub/moved", 0);
	tl_add_unlinkat(batch, folder, "sub", AT_REMOVEDIR);
	tl_add_unlinkat(batch, folder, "symbolic", 0);
	tl_add_unlinkat(batch, folder, "file", 0);
	made();
}

static void sockets_carry_messages(void)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = 5 };
	int ends[2], epoll, number = 0;
	unsigned int bytes = sizeof(number);
	struct msghdr message = { 0 };
	char text[8] = "";

	tl_add_socketpair(batch, AF_UNIX, SOCK_STREAM, 0, ends);
	made();
	CHECK_EQ(one(tl_add_sendto(batch, ends[0], "text", 4, MSG_NOSIGNAL, NULL, 0)), 4);
	epoll = (int)one(tl_add_epoll_create1(batch, EPOLL_CLOEXEC));
	tl_add_epoll_ctl(batch, epoll, EPOLL_CTL_ADD, ends[1], &event);
#ifdef __x86_64__
	tl_add_epoll_wait(batch, epoll, &event, 1, 0);
	CHECK_EQ(made(), 1);
	CHECK_EQ(event.data.u32, 5);
	struct pollfd ready = { .fd = ends[1], .events = POLLIN };
	CHECK_EQ(one(tl_add_poll(batch, &ready, 1, 0)), 1);
#else
	made();
#endif
	CHECK_EQ(one(tl_add_recvfrom(batch, ends[1], text, 8, MSG_DONTWAIT, NULL, NULL)), 4);
	CHECK(!strcmp(text, "text"));
	CHECK_EQ(one(tl_add_sendmsg(batch, ends[0], &message, 0)), 0);
	number = 1;
	tl_add_setsockopt(batch, ends[0], SOL_SOCKET, SO_KEEPALIVE, &number, sizeof(number));
	number = 0;
	tl_add_getsockopt(batch, ends[0], SOL_SOCKET, SO_TYPE, &number, &bytes);
	tl_add_shutdown(batch, ends[0], SHUT_WR);
	made();
	CHECK_EQ(number, SOCK_STREAM);
	close(epoll);
	close(ends[0]);
	close(ends[1]);
}

static void memory_and_time(void)
{
	struct timespec now = { 0, -1 };
	char random[8], *memory;

	memory = (char *)one(tl_add_mmap(batch, NULL, 4096, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	memory[4095] = 1;
	tl_add_madvise(batch, memory, 4096, MADV_DONTNEED);
	tl_add_clock_gettime(batch, CLOCK_REALTIME, &now);
	made();
	CHECK_EQ(memory[4095], 0);
	CHECK(now.tv_sec > 0 && now.tv_nsec >= 0);
	CHECK_EQ(one(tl_add_munmap(batch, memory, 4096)), 0);
	/* The debug kernel has no good random numbers for its first two minutes. */
	CHECK_EQ(one(tl_add_getrandom(batch, random, 8, GRND_INSECURE)), 8);
	CHECK_EQ(one(tl_add_getppid(batch)), getppid());
	CHECK_EQ(one(tl_add_kill(batch, getpid(), 0)), 0);
}

static void arguments_are_taken_from_earlier_calls(void)
{
	char text[4] = "";
	int fd = tl_add_openat(batch, AT_FDCWD, "/proc/self/comm", O_RDONLY, 0);

	CHECK_EQ(tl_add_taking(batch, TL_RESULT(0), tl_add_read(batch, fd, text, 3)), 1);
	CHECK_EQ(tl_add_taking(batch, TL_RESULT(0), tl_add_close(batch, fd)), 2);
	CHECK_EQ(made(), 0);
	CHECK(!strcmp(text, "lib"));
	CHECK_EQ(tl_add_taking(batch, TL_RESULT(0), -EAGAIN), -EAGAIN);
}

static void calls_keep_their_data(void)
{
	int first = tl_add_getpid(batch), second = tl_add_getpid(batch);

	CHECK_EQ(tl_batch_data(batch, 1), 0);
	CHECK_EQ(tl_batch_set_data(batch, (unsigned int)second, 77), 0);
	CHECK_EQ(tl_batch_set_data(batch, (unsigned int)first, UINT64_MAX), 0);
	CHECK_EQ(tl_batch_set_data(batch, 2, 1), -EINVAL);
	CHECK_EQ(tl_batch_set_data(batch, (unsigned int)-EAGAIN, 1), -EINVAL);
	made();
	CHECK_EQ(tl_batch_data(batch, 0), UINT64_MAX);
	CHECK_EQ(tl_batch_data(batch, 1), 77);
	CHECK_EQ(tl_batch_data(batch, 16), 0);
	CHECK_EQ(tl_batch_data(batch, (unsigned int)-EAGAIN), 0);
	CHECK_EQ(tl_batch_set_data(batch, 0, 1), -EINVAL);
}

static void child_has_no_data(void)
{
	CHECK_EQ(tl_batch_set_data(batch, 0, 1), -EPERM);
	CHECK_EQ(tl_batch_data(batch, 0), 0);
}

int main(void)
{
	char name[] = "/tmp/typed-XXXXXX";

	batch = batch_new(16);
	CHECK(mkdtemp(name));
	folder = MUST(open(name, O_RDONLY | O_DIRECTORY));
	files_are_written_and_read();
	names_are_changed();
	sockets_carry_messages();
	memory_and_time();
	arguments_are_taken_from_earlier_calls();
	calls_keep_their_data();
	CHECK_EXITED(child_run(child_has_no_data), 0);
	CHECK_EQ(rmdir(name), 0);
	tl_batch_destroy(batch);
	return 0;
}
