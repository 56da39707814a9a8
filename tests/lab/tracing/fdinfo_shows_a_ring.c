// SPDX-License-Identifier: GPL-2.0-only
/*
 * /proc/PID/fdinfo/N tells an operator of a ring what it is, how many requests were submitted and
 * completed, who is inside and asleep, and why it stopped last: while its threads are stuck, with
 * its memory overwritten, and when the process has unmapped it.
 */
#include "ring.h"

static pid_t owner;

/* Does the ring's text have this line? It may be asked for by another process. */
static bool shows(const struct ring *ring, const char *line)
{
	char path[64], text[4096];
	const char *found;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", owner, ring->fd);
	CHECK(read_file(path, text, sizeof(text)) > 0);
	found = strstr(text, line);
	if (!found || found[strlen(line)] != '\n' || (found != text && found[-1] != '\n')) {
		printf("no line '%s' in:\n%s", line, text);
		return false;
	}
	return true;
}

static void show_no_ring(void)
{
	struct ring ring = { .fd = device_open() };

	CHECK(shows(&ring, "kind:\tnone"));
	MUST(close(ring.fd));
}

static void show_batches(void)
{
	struct ring ring = ring_open(8);
	struct caller caller;
	int pipe_fd[2];
	char byte;

	MUST(pipe(pipe_fd));
	CHECK(shows(&ring, "kind:\tbatches"));
	CHECK(shows(&ring, "entries:\t8"));
	CHECK(shows(&ring, "last-stop:\tnever"));
	for (unsigned int slot = 0; slot < 3; slot++)
		ring_put(&ring, slot, slot == 1 ? SYS_execve : SYS_getppid);
	CHECK_EQ(ring_batch(&ring, 0, 3), 3);
	CHECK(shows(&ring, "crossings:\t1"));
	CHECK(shows(&ring, "submitted:\t3"));
	CHECK(shows(&ring, "completed:\t3"));
	CHECK(shows(&ring, "threads-inside:\t0"));

	ring_put(&ring, 0, SYS_getppid);
	ring_put(&ring, 1, SYS_read, pipe_fd[0], &byte, 1);
	ring_put(&ring, 2, SYS_getppid);
	caller_start(&caller, &ring, 3, TL_ENTER_BATCH);
	CHECK(shows(&ring, "crossings:\t2"));
	CHECK(shows(&ring, "submitted:\t6"));
	CHECK(shows(&ring, "completed:\t3"));
	CHECK(shows(&ring, "threads-inside:\t1"));
	CHECK_EQ(pthread_kill(caller.thread, SIGUSR1), 0);
	CHECK_EQ(caller_join(&caller), 1);
	CHECK(shows(&ring, "submitted:\t4"));
	CHECK(shows(&ring, "completed:\t4"));
	CHECK(shows(&ring, "threads-inside:\t0"));
	CHECK(shows(&ring, "last-stop:\tsignal before request 1"));
	ring_close(&ring);
}

static void show_programs(void)
{
	struct ring ring = ring_open(8);
	struct tl_program *program = (void *)(ring.requests + 8);
	static uint64_t word;

	ring_put(&ring, 0, SYS_getppid);
	ring_put(&ring, 1, TL_NR_INCREASE | TL_JUMPS, &word, 1);
	ring.requests[1].target = 1;
	*program = (struct tl_program){ .steps = 5 };
	CHECK_EQ(enter(&ring, 2, TL_ENTER_PROGRAM), 5);
	CHECK(shows(&ring, "submitted:\t5"));
	CHECK(shows(&ring, "completed:\t5"));
	CHECK(shows(&ring, "last-stop:\tsteps before request 1"));
	ring_close(&ring);
}

/* The memory says nothing of it: it is overwritten. */
static void show_workers(void)
{
	struct worker workers[2] = { { .signals = true }, { .signals = true } };
	struct ring ring = worker_ring_open(8);
	struct caller caller;
	int pipe_fd[2], status;
	pid_t other;
	char byte;

	MUST(pipe(pipe_fd));
	CHECK(shows(&ring, "kind:\tworkers"));
	for (int i = 0; i < 2; i++)
		worker_start(&workers[i], &ring);
	ring_queue(&ring, 0, SYS_getppid);
	CHECK_EQ(ring_wait(&ring, 1, 0), 0);
	ring_queue(&ring, 1, SYS_read, pipe_fd[0], &byte, 1);
	CHECK_EQ(ring_notify(&ring, 1), 1);
	WAIT_UNTIL(ring_state(&ring, 1) == TL_RUNNING, "state %u", ring_state(&ring, 1));
	for (int i = 0; i < 2; i++)
		wait_asleep(workers[i].tid);
	caller_start(&caller, &ring, TL_WAIT(0, 0), TL_ENTER_WAIT);
	memset(ring.requests, 0xff, TL_RING_BYTES(8));
	other = MUST(fork());
	if (other == 0) {
		bool ok = shows(&ring, "entries:\t8") && shows(&ring, "submitted:\t2") &&
			  shows(&ring, "completed:\t1") && shows(&ring, "dropped:\t0") &&
			  shows(&ring, "workers-inside:\t2") &&
			  shows(&ring, "workers-asleep:\t1") &&
			  shows(&ring, "requesters-waiting:\t1") &&
			  shows(&ring, "last-stop:\tnever");

		_exit(!ok);
	}
	status = child_wait(other);
	CHECK_EXITED(status, 0);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_kill(workers[i].thread, SIGUSR1), 0);
	for (int i = 0; i < 2; i++)
		worker_join(&workers[i]);
	CHECK(shows(&ring, "workers-inside:\t0"));
	CHECK(shows(&ring, "last-stop:\tsignal"));
	CHECK_EQ(ring_ioctl(&ring, TL_IOC_EXIT), 0);
	CHECK_EQ(caller_join(&caller), -ESHUTDOWN);
	CHECK_EQ(sys(SYS_munmap, ring.requests, TL_RING_BYTES(8)), 0);
	CHECK(shows(&ring, "submitted:\t2"));
	MUST(close(ring.fd));
}

int main(void)
{
	owner = getpid();
	on_signal(SIGUSR1, count_signal, SA_RESTART);
	show_no_ring();
	show_batches();
	show_programs();
	show_workers();
	return 0;
}
