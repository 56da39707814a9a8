// SPDX-License-Identifier: GPL-2.0-only
/*
 * A descriptor that shows an event becomes a thread, once until that thread has run; other work
 * goes on meanwhile; a scheduler with nothing else to do sleeps until an event or a stop.
 */
#include "lib_check.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/timerfd.h>

static struct tl_sched *sched;
static int pipes[2];
static int events_seen;
static char received[8];
static int64_t result;

static void on_timer(struct tl_thread *self, void *arg)
{
	static uint64_t ticks;
	int timer = *(int *)arg;

	CHECK_EQ(TL_CALL(tl_thread_sched(self), NULL, NULL, SYS_read, timer, &ticks, 8), 0);
	if (++events_seen == 3)
		CHECK_EQ(tl_event_remove(sched, timer), 0);
}

static void timer_becomes_threads(void)
{
	struct itimerspec every = { { 0, 5000000 }, { 0, 5000000 } };
	int timer = MUST(timerfd_create(CLOCK_MONOTONIC, 0));
	uint64_t start_us = now_us();

	MUST(timerfd_settime(timer, 0, &every, NULL));
	events_seen = 0;
	sched = sched_new(0, 0, 0);
	CHECK_EQ(tl_event_add(sched, timer, POLLIN, on_timer, &timer), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(events_seen, 3);
	CHECK(now_us() - start_us >= 15000);
	/* The scheduler slept: a look for each tick, the last read, and little more. */
	CHECK_WITHIN(sched_stats(sched).flushes_idle, 4, 8);
	CHECK_EQ(tl_event_remove(sched, timer), -ENOENT);
	tl_sched_destroy(sched);
	close(timer);
}

static void got(struct tl_thread *self, void *arg)
{
	(void)self;
	(void)arg;
	CHECK_EQ(result, 5);
	CHECK_EQ(strcmp(received, "event"), 0);
	CHECK_EQ(tl_event_remove(sched, pipes[0]), 0);
}

static void on_pipe(struct tl_thread *self, void *arg)
{
	struct tl_thread *next;

	(void)arg;
	events_seen++;
	CHECK_EQ(tl_thread_create(tl_thread_sched(self), &next, got, NULL, 1), 0);
	CHECK_EQ(TL_CALL(sched, next, &result, SYS_read, pipes[0], received, 5), 0);
}

static void feeder(struct tl_thread *self, void *arg)
{
	CHECK_EQ(TL_CALL(tl_thread_sched(self), NULL, NULL, SYS_write, pipes[1], arg, 5), 0);
}

static void event_of_own_write_is_read_once(void)
{
	events_seen = 0;
	sched = sched_new(0, 0, 0);
	CHECK_EQ(tl_event_add(sched, pipes[0], POLLIN, on_pipe, NULL), 0);
	tl_thread_create(sched, NULL, feeder, "event", 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(events_seen, 1);
	tl_sched_destroy(sched);
}

static void busy(struct tl_thread *self, void *arg)
{
	if (!events_seen)
		tl_thread_create(tl_thread_sched(self), NULL, busy, arg, 0);
}

static void events_reach_a_busy_scheduler(void)
{
	events_seen = 0;
	sched = sched_new(0, 0, 0);
	MUST(write(pipes[1], "event", 5));
	CHECK_EQ(tl_event_add(sched, pipes[0], POLLIN, on_pipe, NULL), 0);
	tl_thread_create(sched, NULL, busy, NULL, 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(events_seen, 1);
	tl_sched_destroy(sched);
}

static void busy_with_calls(struct tl_thread *self, void *arg)
{
	const uint64_t *limit_us = arg;

	CHECK(now_us() < *limit_us);
	CHECK_EQ(TL_CALL(sched, NULL, NULL, SYS_getppid), 0);
	if (!events_seen)
		tl_thread_create(tl_thread_sched(self), NULL, busy_with_calls, arg, 0);
}

/* Each flush is of a full ring, which has no room for a look at the events. */
static void events_reach_a_scheduler_with_full_batches(void)
{
	uint64_t limit_us = now_us() + 5000000;

	events_seen = 0;
	sched = sched_new(4, 4, 0);
	MUST(write(pipes[1], "event", 5));
	CHECK_EQ(tl_event_add(sched, pipes[0], POLLIN, on_pipe, NULL), 0);
	for (int i = 0; i < 8; i++)
		tl_thread_create(sched, NULL, busy_with_calls, &limit_us, 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(events_seen, 1);
	tl_sched_destroy(sched);
}

static void count_event(struct tl_thread *self, void *arg)
{
	(void)self;
	(void)arg;
	events_seen++;
}

static void what_cannot_be_watched_is_refused(void)
{
	int file = MUST(memfd_create("ready", 0)), fd = MUST(dup(pipes[0]));

	sched = sched_new(0, 0, 0);
	CHECK_EQ(tl_event_add(sched, -1, POLLIN, count_event, NULL), -EBADF);
	CHECK_EQ(tl_event_add(sched, fd, POLLIN, NULL, NULL), -EINVAL);
	CHECK_EQ(tl_event_add(sched, fd, 1u << 20, count_event, NULL), -EINVAL);
	CHECK_EQ(tl_event_add(sched, file, POLLIN, count_event, NULL), -EPERM);
	MUST(close(fd));
	CHECK_EQ(tl_event_add(sched, fd, POLLIN, count_event, NULL), -EBADF);
	CHECK_EQ(tl_event_remove(sched, fd), -ENOENT);
	CHECK_EQ(tl_event_remove(sched, -1), -ENOENT);
	CHECK_EQ(tl_sched_run(sched), 0);
	tl_sched_destroy(sched);
	close(file);
}

static void remove_own(struct tl_thread *self, void *arg)
{
	count_event(self, arg);
	CHECK_EQ(tl_event_remove(sched, *(int *)arg), 0);
}

static void many_events_arrive(void)
{
	int fds[200];

	events_seen = 0;
	sched = sched_new(0, 0, 0);
	MUST(write(pipes[1], "e", 1));
	for (int i = 0; i < 200; i++) {
		fds[i] = MUST(dup(pipes[0]));
		CHECK_EQ(tl_event_add(sched, fds[i], POLLIN, remove_own, &fds[i]), 0);
	}
	for (int i = 0; i < 200; i += 2)
		CHECK_EQ(tl_event_remove(sched, fds[i]), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(events_seen, 100);
	for (int i = 0; i < 200; i++)
		close(fds[i]);
	MUST(read(pipes[0], received, 1));
	tl_sched_destroy(sched);
}

/* Two calls fill the batch of the next test: a look at the events follows. */
static void look(struct tl_thread *self, void *arg)
{
	(void)arg;
	for (int i = 0; i < 2; i++)
		CHECK_EQ(TL_CALL(tl_thread_sched(self), NULL, NULL, SYS_getppid), 0);
}

static void new_event(struct tl_thread *self, void *arg)
{
	count_event(self, arg);
	CHECK_EQ(tl_event_remove(sched, pipes[0]), 0);
}

static void register_again(struct tl_thread *self, void *arg)
{
	CHECK_EQ(tl_event_remove(sched, pipes[0]), 0);
	CHECK_EQ(tl_event_add(sched, pipes[0], POLLIN, new_event, NULL), 0);
	look(self, arg);
}

/* Runs look, register_again, new_event: that but once, and the look of the old registration not. */
static void thread_of_an_old_registration_is_not_of_the_new(void)
{
	char byte;

	events_seen = 0;
	sched = sched_new(2, 8, 0);
	MUST(write(pipes[1], "e", 1));
	CHECK_EQ(tl_event_add(sched, pipes[0], POLLIN, look, NULL), 0);
	tl_thread_create(sched, NULL, look, NULL, 0);
	tl_thread_create(sched, NULL, register_again, NULL, 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(events_seen, 1);
	CHECK_EQ(sched_stats(sched).threads_run, 3);
	MUST(read(pipes[0], &byte, 1));
	tl_sched_destroy(sched);
}

/* Somebody has closed the epoll set: an error of the run, not a loop for ever. */
static void run_says_why_it_cannot_look(void)
{
	sched = sched_new(0, 0, 0);
	CHECK_EQ(tl_event_add(sched, pipes[0], POLLIN, count_event, NULL), 0);
	MUST(close(tl_sched_fd(sched)));
	CHECK_EQ(tl_sched_run(sched), -EBADF);
	tl_sched_destroy(sched);
}

static void stop(int signal)
{
	(void)signal;
	tl_sched_stop(sched);
}

static void signal_stops_a_sleeping_scheduler(void)
{
	sched = sched_new(0, 0, 0);
	on_signal(SIGALRM, stop, 0);
	CHECK_EQ(tl_event_add(sched, pipes[0], POLLIN, count_event, NULL), 0);
	alarm_ms(30, 10);
	CHECK_EQ(tl_sched_run(sched), 0);
	alarm_ms(0, 0);
	tl_sched_destroy(sched);
}

/* The stop comes before the look that the flush ends with, and then the event does. */
static void event_behind_a_stopped_flush_is_seen(void)
{
	int gate[2];

	MUST(pipe(gate));
	events_seen = 0;
	sched = sched_new(0, 0, 0);
	on_signal(SIGALRM, stop, 0);
	CHECK_EQ(tl_event_add(sched, pipes[0], POLLIN | EPOLLET, new_event, NULL), 0);
	CHECK_EQ(TL_CALL(sched, NULL, NULL, SYS_read, gate[0], received, 1), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(TL_CALL(sched, NULL, NULL, SYS_getppid), 0);
	alarm_ms(30, 10);
	CHECK_EQ(tl_sched_run(sched), 0);
	alarm_ms(0, 0);
	MUST(write(gate[1], "g", 1));
	MUST(write(pipes[1], "e", 1));
	for (int i = 0; i < 3 && !events_seen; i++)
		CHECK(tl_sched_run_once(sched, 0) >= 0);
	CHECK_EQ(events_seen, 1);
	MUST(read(pipes[0], received, 1));
	tl_sched_destroy(sched);
	close(gate[0]);
	close(gate[1]);
}

static void stopper(struct tl_thread *self, void *arg)
{
	(void)arg;
	tl_sched_stop(tl_thread_sched(self));
}

static void stop_leaves_work_for_the_next_run(void)
{
	sched = sched_new(0, 0, 0);
	result = 0;
	CHECK_EQ(TL_CALL(sched, NULL, &result, SYS_getppid), 0);
	tl_thread_create(sched, NULL, stopper, NULL, 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(result, 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(result, getppid());
	tl_sched_destroy(sched);
}

int main(void)
{
	MUST(pipe(pipes));
	timer_becomes_threads();
	event_of_own_write_is_read_once();
	events_reach_a_busy_scheduler();
	events_reach_a_scheduler_with_full_batches();
	what_cannot_be_watched_is_refused();
	many_events_arrive();
	thread_of_an_old_registration_is_not_of_the_new();
	run_says_why_it_cannot_look();
	signal_stops_a_sleeping_scheduler();
	event_behind_a_stopped_flush_is_seen();
	stop_leaves_work_for_the_next_run();
	return 0;
}
