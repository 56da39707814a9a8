// SPDX-License-Identifier: GPL-2.0-only
/*
 * One list of real calls is made three times, each in a fresh process and directory: plainly, by
 * batches, and by a worker. Every result and every byte that the calls wrote must be the same,
 * failures included; what workers refuse, they refuse with -EOPNOTSUPP. Then batches repeat calls.
 */
#include <linux/limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "calls.h"
#include "ring.h"

enum compare { SAME, SIGN };	/* SIGN: an address or a time: same sign, same error */

struct step {
	uint32_t nr;
	enum compare compare;
	long args[6];
};

#define STEPS_MAX 256u
#define FIRST_FD 100		/* descriptors that the steps make are dup'ed to fixed numbers */

static struct step steps[STEPS_MAX];
static unsigned int steps_count;

/* Where the calls write. The same addresses in every process: they are static. */
static struct {
	char read[64], pread[16], link[64], cwd[PATH_MAX], names[1024], peek[16];
	struct stat stat, fstat;
	struct timespec resolution;
	struct rlimit limit;
	struct iovec vector[2];
	char scattered[2][4];
	int pair[2], pipes[2], socket_error;
	socklen_t socket_length;
	struct epoll_event event;
	uint64_t counter;
} out;

/* Shared by the three processes. */
static struct outcome {
	long results[STEPS_MAX];
	char bytes[sizeof(out)];
} *outcomes;

static void step6(enum compare compare, uint32_t nr, long a0, long a1, long a2, long a3, long a4,
		  long a5)
{
	CHECK(steps_count < STEPS_MAX);
	steps[steps_count++] = (struct step){ nr, compare, { a0, a1, a2, a3, a4, a5 } };
}

#define STEP_PAD(compare, nr, a0, a1, a2, a3, a4, a5, ...)			\
	step6(compare, (uint32_t)(nr), (long)(a0), (long)(a1), (long)(a2),	\
	      (long)(a3), (long)(a4), (long)(a5))
#define step(...) STEP_PAD(SAME, __VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define step_sign(...) STEP_PAD(SIGN, __VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

static void files(void)
{
	step(SYS_mkdir, "d", 0755);
	step(SYS_mkdir, "d", 0755);
	step(SYS_openat, AT_FDCWD, "d/f", O_RDWR | O_CREAT | O_EXCL, 0640);
	step(SYS_openat, AT_FDCWD, "d/f", O_RDWR | O_CREAT | O_EXCL, 0640);
	step(SYS_dup3, 3, FIRST_FD, O_CLOEXEC);
	step(SYS_close, 3);
	step(SYS_close, 3);
	step(SYS_write, FIRST_FD, "0123456789abcdef", 16);
	step(SYS_pwrite64, FIRST_FD, "XY", 2, 4);
	step(SYS_lseek, FIRST_FD, 2, SEEK_SET);
	step(SYS_lseek, FIRST_FD, -9, SEEK_SET);
	step(SYS_read, FIRST_FD, out.read, 8);
	step(SYS_read, FIRST_FD, NULL, 8);
	step(SYS_pread64, FIRST_FD, out.pread, 16, 10);
	step(SYS_readv, FIRST_FD, out.vector, 2);
	step(SYS_readv, FIRST_FD, out.vector, -1);
	step(SYS_ftruncate, FIRST_FD, 12);
	step(SYS_ftruncate, FIRST_FD, -1);
	step(SYS_fallocate, FIRST_FD, 0, 0, 8192);
	step(SYS_fsync, FIRST_FD);
	step(SYS_fdatasync, -1);
	step(SYS_fchmod, FIRST_FD, 0600);
	step(SYS_fchown, FIRST_FD, 0, 0);
	step(SYS_link, "d/f", "d/g");
	step(SYS_symlink, "f", "d/s");
	step(SYS_readlink, "d/s", out.link, sizeof(out.link));
	step(SYS_readlink, "d/f", out.link, sizeof(out.link));
	step(SYS_rename, "d/g", "d/h");
	step(SYS_rename, "d/g", "d/h");
	step(SYS_access, "d/h", R_OK);
	step(SYS_access, "d/nowhere", R_OK);
	step(SYS_faccessat, AT_FDCWD, "d/f", X_OK);
	step(SYS_truncate, "d/h", 5000);
	step(SYS_newfstatat, AT_FDCWD, "d/nowhere", &out.stat, 0);
	step(SYS_newfstatat, AT_FDCWD, "d/f", NULL, 0);
	step(SYS_fcntl, FIRST_FD, F_GETFL);
	step(SYS_fcntl, FIRST_FD, F_SETFL, O_APPEND);
	step(SYS_fcntl, FIRST_FD, F_GETFL);
	step(SYS_fcntl, FIRST_FD, 4242);
	step(SYS_flock, FIRST_FD, 2);
	step(SYS_chdir, "d");
	step(SYS_getcwd, out.cwd, 2);
	step(SYS_unlink, "h");
	step(SYS_unlink, "h");
	step(SYS_chdir, "..");
	step(SYS_rmdir, "d");
	step(SYS_umask, 027);
	step(SYS_umask, 022);
	step(SYS_statfs, "d", NULL);
	step(SYS_copy_file_range, FIRST_FD, NULL, FIRST_FD, NULL, 1, 1);
	step(SYS_sendfile, FIRST_FD, FIRST_FD, NULL, 4);
	step(SYS_ioctl, FIRST_FD, 0x5401 /* TCGETS */, NULL);
	step(SYS_getdents64, FIRST_FD, out.names, sizeof(out.names));
	step(SYS_openat, AT_FDCWD, "", O_RDONLY);
	step(SYS_openat, AT_FDCWD, NULL, O_RDONLY);
	step(SYS_openat, -7, "x", O_RDONLY);
}

static void pipes_and_sockets(void)
{
	static struct sockaddr_un nobody = { .sun_family = AF_UNIX, .sun_path = "nobody" };

	step(SYS_pipe2, out.pipes, O_NONBLOCK);
	step(SYS_pipe2, out.pipes, 0x12345678);
	step(SYS_read, 3, out.peek, 4);
	step(SYS_write, 4, "pipe", 4);
	step(SYS_tee, 3, 4, 4, 0);
	step(SYS_read, 3, out.peek, 16);
	step(SYS_dup2, 3, FIRST_FD + 1);
	step(SYS_dup, -1);
	step(SYS_poll, NULL, 0, 0);
	step(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, out.pair);
	step(SYS_socket, 4242, SOCK_STREAM, 0);
	step(SYS_socket, AF_UNIX, SOCK_DGRAM, 0);
	step(SYS_connect, 7, &nobody, sizeof(nobody));
	step(SYS_bind, 7, &nobody, sizeof(nobody));
	step(SYS_bind, 7, &nobody, 1);
	step(SYS_listen, 7, 1);
	step(SYS_accept4, 5, NULL, NULL, 0);
	step(SYS_sendto, 5, "socket", 6, 0, NULL, 0);
	step(SYS_recvfrom, 6, out.peek, 3, 2 /* MSG_PEEK */, NULL, NULL);
	step(SYS_recvfrom, 6, out.peek, 16, 0, NULL, NULL);
	step(SYS_recvfrom, 6, out.peek, 16, 0, NULL, NULL);
	step(SYS_getsockopt, 6, SOL_SOCKET, SO_TYPE, &out.socket_error, &out.socket_length);
	step(SYS_setsockopt, 6, SOL_SOCKET, 4242, &out.socket_error, 4);
	step(SYS_shutdown, 5, 1);
	step(SYS_sendto, 5, "x", 1, MSG_NOSIGNAL, NULL, 0);
	step(SYS_read, 6, out.peek, 1);
	step(SYS_getpeername, 7, NULL, NULL);
	step(SYS_eventfd2, 5, 0);
	step(SYS_read, 8, &out.counter, 8);
	step(SYS_write, 8, &out.counter, 8);
	step(SYS_write, 8, &out.counter, 7);
	step(SYS_epoll_create1, 0);
	step(SYS_epoll_ctl, 9, EPOLL_CTL_ADD, 8, &out.event);
	step(SYS_epoll_ctl, 9, EPOLL_CTL_ADD, 8, &out.event);
	step(SYS_epoll_wait, 9, &out.event, 1, 0);
	step(SYS_epoll_ctl, 9, 77, 8, &out.event);
	step(SYS_timerfd_create, CLOCK_MONOTONIC, 0);
	step(SYS_timerfd_create, 4242, 0);
	step(SYS_signalfd4, -1, NULL, 0, 0);
	step(SYS_inotify_init1, 0);
	step(SYS_inotify_add_watch, 11, "nowhere", 1);
	step(SYS_memfd_create, "m", 0);
	step(SYS_memfd_create, "m", 0xffff);
}

static void memory_and_time(void)
{
	static struct timespec pause = { .tv_nsec = 1 }, bad_pause = { .tv_nsec = -1 };
	static char page[8192] __attribute__((aligned(4096)));

	step_sign(SYS_mmap, NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	step(SYS_mmap, NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	step(SYS_mmap, NULL, 4096, PROT_READ, MAP_PRIVATE, 4242, 0);
	step(SYS_munmap, 1, 4096);
	step(SYS_mprotect, page, 4096, PROT_READ);
	step(SYS_mprotect, page, 4096, PROT_READ | PROT_WRITE);
	step(SYS_mprotect, page + 1, 4096, PROT_READ);
	step(SYS_madvise, page, 4096, MADV_WILLNEED);
	step(SYS_madvise, page, 4096, 4242);
	step(SYS_mincore, page, 4096, NULL);
	step(SYS_msync, page, 4096, 4242);
	step(SYS_mremap, page, 4096, 0, 0);
	step_sign(SYS_brk, 0);
	step(SYS_clock_getres, CLOCK_MONOTONIC, &out.resolution);
	step(SYS_clock_gettime, 4242, &out.resolution);
	step(SYS_clock_settime, CLOCK_MONOTONIC, &pause);
	step(SYS_nanosleep, &pause, NULL);
	step(SYS_nanosleep, &bad_pause, NULL);
	step(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
	step_sign(SYS_time, NULL);
	step_sign(SYS_times, NULL);
	step(SYS_getrlimit, RLIMIT_NOFILE, &out.limit);
	step(SYS_getrlimit, 4242, &out.limit);
	step(SYS_getpriority, PRIO_PROCESS, 0);
	step(SYS_getpgid, 0);
	step(SYS_getpgid, 0x7fffffff);
	step(SYS_getppid);
	step(SYS_getuid);
	step(SYS_getegid);
	step(SYS_kill, 0x7fffffff, 0);
	step(SYS_kill, 1, 4242);
	step(SYS_sched_yield);
	step(SYS_sched_get_priority_max, SCHED_FIFO);
	step(SYS_sched_get_priority_max, 4242);
	step(SYS_sysinfo, NULL);
	step(SYS_uname, NULL);
	step(SYS_getrandom, out.peek, 0, 0);
	step(SYS_getrandom, out.peek, 1, 4242);
	step(SYS_futex, page, 1 /* FUTEX_WAKE */, 1);
	step(SYS_futex, page, 0 /* FUTEX_WAIT */, 1);
	step(SYS_futex, page + 1, 0, 0);
	step(SYS_membarrier, 0, 4242);
	step(SYS_getcpu, NULL, NULL, NULL);
}

static void run_plainly(struct outcome *outcome)
{
	for (unsigned int i = 0; i < steps_count; i++) {
		const long *a = steps[i].args;

		outcome->results[i] = sys6(steps[i].nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	}
}

/* Keeps low descriptor numbers for the steps. */
static void move_ring(struct ring *ring)
{
	CHECK_EQ(sys(SYS_dup3, ring->fd, 200, O_CLOEXEC), 200);
	CHECK_EQ(sys(SYS_close, ring->fd), 0);
	ring->fd = 200;
}

static void put_steps(struct ring *ring)
{
	for (unsigned int i = 0; i < steps_count; i++) {
		const long *a = steps[i].args;

		ring_put6(ring, i, steps[i].nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	}
}

static void keep_results(const struct ring *ring, struct outcome *outcome)
{
	for (unsigned int i = 0; i < steps_count; i++) {
		CHECK_EQ(ring_state(ring, i), TL_DONE);
		outcome->results[i] = ring_result(ring, i);
	}
}

static void run_by_batch(struct outcome *outcome)
{
	struct ring ring = ring_open(STEPS_MAX);

	move_ring(&ring);
	put_steps(&ring);
	CHECK_EQ(ring_batch(&ring, 0, steps_count), steps_count);
	keep_results(&ring, outcome);
}

static void run_by_worker(struct outcome *outcome)
{
	struct ring ring = worker_ring_open(STEPS_MAX);
	struct worker worker = { 0 };

	move_ring(&ring);
	put_steps(&ring);
	worker_start(&worker, &ring);
	for (unsigned int i = 0; i < steps_count; i++)
		ring_submit(&ring, i);
	CHECK_EQ(ring_wait(&ring, steps_count, 0), 0);
	keep_results(&ring, outcome);
	workers_end(&ring, &worker, 1);
}

static const struct way {
	const char *name;
	void (*run)(struct outcome *outcome);
} ways[] = { { "plain", run_plainly }, { "batch", run_by_batch }, { "worker", run_by_worker } };

static void run_in_child(const struct way *way, struct outcome *outcome)
{
	pid_t pid = MUST(fork());

	if (pid == 0) {
		MUST(mkdir(way->name, 0755));
		MUST(chdir(way->name));
		sys(SYS_close_range, 3, ~0U, 0);
		way->run(outcome);
		memcpy(outcome->bytes, &out, sizeof(out));
		_exit(0);
	}
	CHECK_EXITED(child_wait(pid), 0);
}

static void compare(const struct way *way, const struct outcome *got)
{
	const struct outcome *plain = &outcomes[0];

	for (unsigned int i = 0; i < steps_count; i++) {
		long result = got->results[i], want = plain->results[i];
		bool same;

		if (way->run == run_by_worker && call_find(steps[i].nr)->class == CALL_BATCH_ONLY)
			want = -EOPNOTSUPP;
		same = steps[i].compare == SAME || want < 0 ? result == want : result >= 0;
		if (!same)
			FAIL("step %u, call %u by %s: %ld, plainly %ld", i, steps[i].nr, way->name,
			     result, want);
	}
	for (size_t i = 0; i < sizeof(out); i++)
		if (got->bytes[i] != plain->bytes[i])
			FAIL("byte %zu of what the calls wrote differs by %s", i, way->name);
}

/* ---- Batches whose calls repeat ---- */

/*
 * They may take a way of their own, by direct calls of the handlers of hot rows. Each hot call
 * returns the same there as a plain call, alone and beside others, and what the table refuses is
 * refused, also by a number that another thread rewrites meanwhile.
 */
#define REPEATED 32u
#define ROUNDS 2000

static const uint32_t hot[] = {
#define TL_HOT(name, nr) nr,
#include <linux/trapless_calls.h>
#undef TL_HOT
};

#define HOT (sizeof(hot) / sizeof(*hot))

static void put_call(struct ring *ring, unsigned int slot, uint32_t nr)
{
	ring_put6(ring, slot, nr, -1, 0, 0, -1, 0, 0);
}

static long plain(uint32_t nr)
{
	return sys(nr, -1, 0, 0, -1, 0, 0);
}

/* A batch in which these calls take turns. */
static void repeat(struct ring *ring, const uint32_t *turns, const long *results, unsigned int n)
{
	for (unsigned int slot = 0; slot < REPEATED; slot++)
		put_call(ring, slot, turns[slot % n]);
	CHECK_EQ(ring_batch(ring, 0, REPEATED), REPEATED);
	for (unsigned int slot = 0; slot < REPEATED; slot++)
		if (ring_result(ring, slot) != results[slot % n])
			FAIL("call %u at slot %u of a batch is %ld, plain %ld", turns[slot % n],
			     slot, ring_result(ring, slot), results[slot % n]);
}

static void hot_calls_equal_plain_ones(struct ring *ring)
{
	for (unsigned int i = 0; i < HOT; i++) {
		uint32_t turns[4] = { hot[i], SYS_fork, SYS_getuid, hot[(i + 1) % HOT] };
		long results[4] = { plain(hot[i]), -EOPNOTSUPP, plain(SYS_getuid),
				    plain(hot[(i + 1) % HOT]) };

		repeat(ring, turns, results, 1);
		repeat(ring, turns, results, 2);
		repeat(ring, turns, results, 4);
	}
	CHECK_EQ(ring_stats(ring).refused, HOT * (REPEATED / 2 + REPEATED / 4));
}

static _Atomic bool over;

/* Between a call that is hot and one that is refused. */
static void *rewrite(void *ring)
{
	volatile struct tl_request *requests = ((struct ring *)ring)->requests;

	for (unsigned int i = 0; !over; i++)
		requests[i % REPEATED].nr = i & 1 << 5 ? SYS_fork : SYS_getppid;
	return NULL;
}

static void numbers_may_change(struct ring *ring)
{
	long parent = getppid();
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, rewrite, ring), 0);
	for (unsigned int round = 0; round < ROUNDS; round++) {
		for (unsigned int slot = 0; slot < REPEATED; slot++)
			put_call(ring, slot, SYS_getppid);
		CHECK_EQ(ring_batch(ring, 0, REPEATED), REPEATED);
		for (unsigned int slot = 0; slot < REPEATED; slot++)
			if (ring_result(ring, slot) != -EOPNOTSUPP)
				CHECK_EQ(ring_result(ring, slot), parent);
	}
	over = true;
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

static void repeating_batches(void)
{
	struct ring ring = ring_open(REPEATED);

	hot_calls_equal_plain_ones(&ring);
	numbers_may_change(&ring);
	ring_close(&ring);
}

int main(void)
{
	unsigned int failures = 0;

	outcomes = shared_memory(sizeof(*outcomes) * 3);
	out.vector[0] = (struct iovec){ out.scattered[0], 4 };
	out.vector[1] = (struct iovec){ out.scattered[1], 4 };
	out.socket_length = sizeof(out.socket_error);
	files();
	pipes_and_sockets();
	memory_and_time();
	for (int i = 0; i < 3; i++)
		run_in_child(&ways[i], &outcomes[i]);
	/* The list must really exercise both: calls that work and calls that fail. */
	for (unsigned int i = 0; i < steps_count; i++)
		failures += outcomes[0].results[i] < 0;
	CHECK_WITHIN(failures, steps_count / 5, steps_count * 4 / 5);
	CHECK(!memcmp(((typeof(out) *)outcomes[0].bytes)->read, "23XY6789", 8));
	compare(&ways[1], &outcomes[1]);
	compare(&ways[2], &outcomes[2]);
	repeating_batches();
	return 0;
}
