// SPDX-License-Identifier: GPL-2.0-only
/*
 * After tl_event_remove() no thread of the event begins, not even one that was created before:
 * whoever removes an event may free its argument. A thread that removes its own event goes on.
 */
#include "lib_check.h"

#include <poll.h>
#include <stdlib.h>

static struct tl_sched *sched;
static int pipes[2];
static int events_seen;
static int64_t result;
static char received[8];

static void count_event(struct tl_thread *self, void *arg)
{
	(void)self;
	(void)arg;
	events_seen++;
}

static void remove_fd(struct tl_thread *self, void *arg)
{
	CHECK_EQ(tl_event_remove(tl_thread_sched(self), *(int *)arg), 0);
	CHECK_EQ(tl_event_remove(tl_thread_sched(self), *(int *)arg), -ENOENT);
}

/* As a server's connection: the continuation of a read that finds the end frees everything. */
struct connection {
	int fd;
	int reads;
};

static void at_end(struct tl_thread *self, void *arg)
{
	struct connection *connection = arg;

	if (result || !connection->reads)
		return;
	CHECK_EQ(tl_event_remove(tl_thread_sched(self), connection->fd), 0);
	memset(connection, 0xff, sizeof(*connection));
	free(connection);
}

static void readable(struct tl_thread *self, void *arg)
{
	struct connection *connection = arg;
	struct tl_thread *next;

	events_seen++;
	connection->reads++;
	CHECK_EQ(tl_thread_create(tl_thread_sched(self), &next, at_end, connection, 1), 0);
	CHECK_EQ(TL_CALL(sched, next, &result, SYS_read, connection->fd, received, 8), 0);
}

/* The read consumes no end of file, so the poll of the same flush creates a thread once more. */
static void continuation_may_free_the_argument(void)
{
	struct connection *connection = calloc(1, sizeof(*connection));
	int fds[2];

	MUST(pipe(fds));
	MUST(close(fds[1]));
	CHECK(connection != NULL);
	connection->fd = fds[0];
	events_seen = 0;
	sched = sched_new(0, 0, 0);
	CHECK_EQ(tl_event_add(sched, fds[0], POLLIN, readable, connection), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(events_seen, 1);
	CHECK_EQ(sched_stats(sched).threads_run, 2);
	tl_sched_destroy(sched);
	close(fds[0]);
}

/* Each of two events removes the other: the one that is found first runs alone. */
static void remove_other(struct tl_thread *self, void *arg)
{
	events_seen++;
	remove_fd(self, arg);
	CHECK_EQ(tl_event_remove(sched, *(int *)arg == pipes[0] ? pipes[1] : pipes[0]), 0);
}

static void thread_of_another_event_is_cancelled(void)
{
	events_seen = 0;
	sched = sched_new(0, 0, 0);
	CHECK_EQ(tl_event_add(sched, pipes[0], POLLIN, remove_other, &pipes[1]), 0);
	CHECK_EQ(tl_event_add(sched, pipes[1], POLLOUT, remove_other, &pipes[0]), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(events_seen, 1);
	CHECK_EQ(sched_stats(sched).threads_run, 1);
	tl_sched_destroy(sched);
}

static void stop_once(struct tl_thread *self, void *arg)
{
	(void)arg;
	CHECK_EQ(tl_event_remove(tl_thread_sched(self), pipes[0]), 0);
	tl_sched_stop(sched);
}

/* A stop leaves the created thread for the next run; a removal between the runs cancels it. */
static void removal_between_runs_cancels(void)
{
	events_seen = 0;
	sched = sched_new(0, 0, 0);
	CHECK_EQ(tl_event_add(sched, pipes[0], POLLIN, stop_once, NULL), 0);
	CHECK_EQ(tl_event_add(sched, pipes[1], POLLOUT, count_event, NULL), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(events_seen, 0);
	CHECK_EQ(tl_event_remove(sched, pipes[1]), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(events_seen, 0);
	tl_sched_destroy(sched);
}

static void count_and_remove(struct tl_thread *self, void *arg)
{
	count_event(self, arg);
	remove_fd(self, arg);
}

/* The removal is queued. It is not to be made behind the next registration of the descriptor. */
static void removal_comes_before_a_registration_in_spite_of_a_stop(void)
{
	events_seen = 0;
	sched = sched_new(0, 0, 0);
	CHECK_EQ(tl_event_add(sched, pipes[0], POLLIN, count_event, NULL), 0);
	tl_sched_stop(sched);
	CHECK_EQ(tl_event_remove(sched, pipes[0]), 0);
	CHECK_EQ(tl_event_add(sched, pipes[0], POLLIN, count_and_remove, &pipes[0]), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(events_seen, 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(events_seen, 1);
	tl_sched_destroy(sched);
}

static void stop(int signal)
{
	(void)signal;
	tl_sched_stop(sched);
}

/* The stop comes between the removal and the next wait: what that has queued is not forgotten. */
static void wait_behind_a_removal_stays_queued(void)
{
	struct tl_thread *thread;
	int gate[2];

	MUST(pipe(gate));
	events_seen = 0;
	sched = sched_new(0, 0, 0);
	on_signal(SIGALRM, stop, 0);
	CHECK_EQ(tl_event_add(sched, pipes[0], POLLIN, count_event, NULL), 0);
	CHECK_EQ(tl_event_remove(sched, pipes[0]), 0);
	CHECK_EQ(TL_CALL(sched, NULL, NULL, SYS_read, gate[0], received, 1), 0);
	CHECK_EQ(tl_thread_create(sched, &thread, count_event, NULL, 1), 0);
	CHECK_EQ(tl_wait(sched, thread, NULL, pipes[0], POLLIN, -1), 0);
	alarm_ms(30, 10);
	CHECK_EQ(tl_sched_run(sched), 0);
	alarm_ms(0, 0);
	MUST(write(gate[1], "g", 1));
	CHECK_EQ(tl_event_add(sched, pipes[0], POLLIN, count_and_remove, &pipes[0]), 0);
	do {
		CHECK_EQ(tl_sched_run(sched), 0);	/* a stop may have been left */
	} while (events_seen < 2);
	tl_sched_destroy(sched);
	close(gate[0]);
	close(gate[1]);
}

int main(void)
{
	MUST(pipe(pipes));
	MUST(write(pipes[1], "e", 1));
	continuation_may_free_the_argument();
	thread_of_another_event_is_cancelled();
	removal_between_runs_cancels();
	removal_comes_before_a_registration_in_spite_of_a_stop();
	wait_behind_a_removal_stays_queued();
	return 0;
}
