// SPDX-License-Identifier: GPL-2.0-only
/*
 * The attack: a thread that was alone enters a batch (the kernel takes no reference of its own
 * to the descriptor), a request makes a kernel thread that shares the table of files (io_uring's
 * poller), and a filter then would end the thread inside the batch. Whoever counts the references
 * that are to be put by who shares the table now puts one too many. The batch stops when
 * there is the poller, and a plain call is what the filter ends.
 */
#include "filter.h"
#include "ring.h"

#define IORING_SETUP_SQPOLL_FLAG 2u
#define ROUNDS 10

static void body(void)
{
	uint32_t parameters[30] = { [2] = IORING_SETUP_SQPOLL_FLAG };	/* struct io_uring_params */
	struct ring ring = ring_open(8);
	long done;

	filter_call(SYS_getppid, SECCOMP_RET_KILL_THREAD);
	ring_put(&ring, 0, SYS_getpid);
	ring_put(&ring, 1, SYS_io_uring_setup, 4, parameters);
	ring_put(&ring, 2, SYS_getpid);
	ring_put(&ring, 3, SYS_getppid);
	done = ring_batch(&ring, 0, 4);
	CHECK_EQ(done, 2);	/* what comes behind the poller is under the filter, too */
	sys(SYS_getppid);
	FAIL("survived a plain call that its filter forbids");
}

/* Only the first thread; a moment more is given to what the kernel does on its own threads. */
static void wait_thread_ended(pid_t pid)
{
	uint64_t deadline = now_ms() + WAIT_MS;
	char path[64], text[512];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	do {
		sleep_ms(2);
		CHECK(read_file(path, text, sizeof(text)) > 0);
	} while (strrchr(text, ')')[2] != 'Z' && now_ms() < deadline);
	sleep_ms(10);
}

int main(void)
{
	for (int round = 0; round < ROUNDS; round++) {
		pid_t pid = child_start(body);
		int status;

		/* The poller outlives the thread that it served: the process ends by us. */
		wait_thread_ended(pid);
		MUST(kill(pid, SIGKILL));
		status = child_wait(pid);
		if (WIFEXITED(status))
			CHECK_CHILD(status);
		for (int again = 0; again < 10; again++) {
			struct ring ring = ring_open(8);

			CHECK_EQ(batch_call(&ring, SYS_getpid), getpid());
			ring_close(&ring);
		}
	}
	return 0;
}
