// SPDX-License-Identifier: GPL-2.0-only
/*
 * A program closes the library's descriptors, as daemons close all, and opens files of every kind
 * in their place. The library uses none of them, moves no position, closes none, and says in every
 * result that depends on its own descriptor that it is lost. Descriptors 0 to 2 are never its own.
 */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

#include "lib_check.h"

#define FDS 64
#define CALLS 4

static const char *const kinds[] = {
	"file", "folder", "pipe, reading", "pipe, writing", "socket", "event counter", "timer",
	"epoll set", "/proc/self/mem", "/proc/self/environ", "/dev/null", "/dev/mem",
};
#define KINDS (sizeof(kinds) / sizeof(*kinds))

static bool mine[FDS];		/* open before the library opened anything */

static int pipe_end(int end)
{
	int fds[2];

	MUST(pipe2(fds, O_NONBLOCK));
	MUST(write(fds[1], "program", 7));
	return fds[end];
}

/* A file of that kind, in a state of which reading, writing or moving it would leave a trace. */
static int file_of_kind(size_t kind)
{
	struct epoll_event event = { .events = EPOLLIN };
	int fds[2], fd;

	switch (kind) {
	case 0:
		fd = MUST(memfd_create("journal", 0));
		MUST(write(fd, "one\ntwo\n", 8));
		MUST(lseek(fd, 4, SEEK_SET));
		return fd;
	case 1: return MUST(open("/", O_RDONLY | O_DIRECTORY));
	case 2: return pipe_end(0);
	case 3: return pipe_end(1);
	case 4:
		MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds));
		MUST(write(fds[1], "program", 7));
		return fds[0];
	case 5: return MUST(eventfd(5, EFD_NONBLOCK));
	case 6: return MUST(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	case 7:
		fd = MUST(epoll_create1(0));
		MUST(epoll_ctl(fd, EPOLL_CTL_ADD, pipe_end(1), &event));
		return fd;
	default: return open(kinds[kind], O_RDONLY);
	}
}

/* All that the kernel shows of a descriptor: position, counters, members of a set. */
static void state_of(int fd, char text[2048])
{
	struct stat st;
	int unread = 0;
	char path[64];
	FILE *file;
	size_t n;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	file = fopen(path, "r");
	if (!file)
		FAIL("descriptor %d was closed by the library", fd);
	n = fread(text, 1, 1500, file);
	fclose(file);
	MUST(fstat(fd, &st));
	ioctl(fd, FIONREAD, &unread);
	snprintf(text + n, 2048 - n, "inode %lu, size %ld, %d bytes unread\n",
		 (unsigned long)st.st_ino, (long)st.st_size, unread);
}

/* ---- The library's descriptors, and what takes their place -------------------------------- */

static int taken[FDS];
static char states[FDS][2048];
static unsigned int taken_n;

static void note_mine(void)
{
	for (int fd = 0; fd < FDS; fd++)
		mine[fd] = fcntl(fd, F_GETFD) >= 0;
}

/* Puts files of this kind in the place of all descriptors that the library has. */
static void take_places(size_t kind)
{
	bool theirs[FDS];
	int fd;

	for (fd = 0; fd < FDS; fd++)
		theirs[fd] = !mine[fd] && fcntl(fd, F_GETFD) >= 0;
	taken_n = 0;
	for (fd = 0; fd < FDS; fd++) {
		int file = theirs[fd] ? file_of_kind(kind) : -1;

		if (file < 0)
			continue;
		CHECK(fd > 2);
		MUST(dup2(file, fd));
		MUST(close(file));
		taken[taken_n++] = fd;
	}
	for (unsigned int i = 0; i < taken_n; i++)
		state_of(taken[i], states[i]);
}

static void check_places(size_t kind, const char *object)
{
	char now[2048];

	for (unsigned int i = 0; i < taken_n; i++) {
		state_of(taken[i], now);
		if (strcmp(now, states[i]))
			FAIL("%s in the place of a descriptor of a %s:\n%sis now\n%s", kinds[kind],
			     object, states[i], now);
	}
	for (int fd = 0; fd < FDS; fd++)
		if (!mine[fd])
			close(fd);
}

/* ---- Objects ------------------------------------------------------------------------------- */

static bool by_module(void)
{
	return LIB_FLAGS & TL_MODULE;
}

static void check_batch(size_t kind, unsigned int flags, bool program)
{
	struct tl_batch *batch = batch_new_flags(8, flags);
	struct tl_stats stats = { .size = sizeof(stats) };
	uint64_t word = 0;

	for (int i = 0; i < CALLS; i++)
		TL_ADD(batch, SYS_getppid);
	CHECK_EQ(tl_batch_flush(batch), CALLS);
	take_places(kind);
	for (int i = 0; i < CALLS; i++)
		TL_ADD(batch, SYS_getppid);
	if (program)
		TL_ADD(batch, TL_NR_STORE, &word, 7);
	CHECK_EQ(tl_batch_flush(batch), by_module() && taken_n ? -EINVAL : CALLS + program);
	CHECK_EQ(tl_batch_get_stats(batch, &stats), by_module() && taken_n ? -EINVAL : 0);
	tl_batch_destroy(batch);
	check_places(kind, "batch");
}

static unsigned int completions_taken(struct tl_psc *psc)
{
	struct tl_psc_completion completion;
	unsigned int n = 0;

	while (tl_psc_next(psc, &completion) == 1)
		n++;
	return n;
}

static void check_psc(size_t kind)
{
	struct tl_psc *psc = NULL;
	int result;

	CHECK_EQ(tl_psc_create(&psc, 8, 0, LIB_FLAGS | TL_COMPLETIONS), 0);
	/* It has entered when it has made a call; one that came later would leave the module. */
	CHECK_EQ(tl_psc_start(psc, 1), 0);
	CHECK(tl_psc_fd(psc) > 2);
	TL_PSC_ADD(psc, SYS_getppid);
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	CHECK_EQ(completions_taken(psc), 1);
	take_places(kind);
	for (int i = 0; i < CALLS; i++)
		TL_PSC_ADD(psc, SYS_getppid);
	result = tl_psc_notify(psc);
	if (by_module() && taken_n) {
		CHECK_EQ(result, -EINVAL);
		CHECK_EQ(tl_psc_wait(psc, 0), -EINVAL);
		CHECK_EQ(tl_psc_wait_for(psc, 4, 1000000), -EINVAL);
	} else {
		CHECK_EQ(result, CALLS);
		CHECK_EQ(tl_psc_wait(psc, 0), 0);
		CHECK_EQ(completions_taken(psc), CALLS);
	}
	tl_psc_destroy(psc);
	check_places(kind, "ring of parallel calls");
}

static void ignore(struct tl_thread *self, void *arg)
{
	(void)self;
	(void)arg;
}

static void check_sched(size_t kind, int quiet, int other)
{
	struct tl_sched *sched = sched_new(32, 0, 0);
	struct tl_thread *thread;
	int64_t result = 0;

	CHECK_EQ(tl_event_add(sched, quiet, EPOLLIN, ignore, NULL), 0);
	CHECK(tl_sched_fd(sched) > 2);
	CHECK_EQ(tl_sched_run_once(sched, 0), 1);
	take_places(kind);
	if (taken_n) {
		CHECK_EQ(tl_event_add(sched, other, EPOLLIN, ignore, NULL), -EINVAL);
		CHECK_EQ(tl_thread_create(sched, &thread, ignore, NULL, 1), 0);
		CHECK_EQ(tl_wait(sched, thread, &result, other, EPOLLIN, 1000000), -EINVAL);
		CHECK_EQ(tl_event_remove(sched, quiet), -EINVAL);
		CHECK_EQ(TL_CALL(sched, NULL, NULL, SYS_getppid), 0);
		tl_sched_run_once(sched, 0);
	}
	tl_sched_destroy(sched);
	check_places(kind, "scheduler");
}

/* Another object of the library is no better a place than a file of the program. */
static void check_twins(void)
{
	struct tl_batch *old, *twin;

	/* So that both get the same number. */
	MUST((int)sys(SYS_close_range, 3, FDS, 0));
	old = batch_new(8);
	TL_ADD(old, SYS_getppid);
	MUST((int)sys(SYS_close_range, 3, FDS, 0));
	CHECK_EQ(tl_batch_flush_all(old), by_module() ? -EBADF : 1);
	twin = batch_new(8);
	TL_ADD(twin, SYS_getppid);
	TL_ADD(old, SYS_getppid);
	CHECK_EQ(tl_batch_flush(old), by_module() ? -EINVAL : 1);
	CHECK(!tl_batch_done(twin, 0));
	tl_batch_destroy(old);
	CHECK_EQ(tl_batch_flush(twin), 1);
	tl_batch_destroy(twin);
}

/* A program that was started without its standard streams. */
static void without_streams(void)
{
	struct tl_batch *batch;
	struct tl_sched *sched;
	struct tl_psc *psc = NULL;

	MUST((int)sys(SYS_close_range, 0, FDS, 0));
	batch = batch_new(8);
	sched = sched_new(32, 0, 0);
	if (tl_sched_fd(sched) < 3 || tl_psc_create(&psc, 8, 0, LIB_FLAGS | TL_COMPLETIONS) ||
	    tl_psc_fd(psc) < 3)
		_exit(1);
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			_exit(2 + fd);
	tl_batch_destroy(batch);
	tl_sched_destroy(sched);
	tl_psc_destroy(psc);
	for (int fd = 0; fd < FDS; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			_exit(5);
}

int main(void)
{
	int quiet = pipe_end(1), other = pipe_end(1);

	note_mine();
	for (size_t kind = 0; kind < KINDS; kind++) {
		check_batch(kind, 0, false);
		check_batch(kind, 0, true);
		check_batch(kind, TL_UNORDERED, false);
		check_psc(kind);
		check_sched(kind, quiet, other);
	}
	CHECK_EXITED(child_run(without_streams), 0);
	check_twins();
	return 0;
}
