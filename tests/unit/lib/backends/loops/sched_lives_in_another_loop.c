// SPDX-License-Identifier: GPL-2.0-only
/*
 * tl_sched_run_once() and tl_sched_fd(): a loop of the program's own waits for the scheduler's
 * descriptor and lets it run. The descriptor shows events, times that are over, and work that is
 * left, and shows nothing when there is nothing to do.
 */
#include "lib_check.h"

#include <poll.h>
#include <sys/epoll.h>

#define MS 1000000l

static struct tl_sched *sched;
static int pipes[2];
static int steps;
static int64_t result;
static char text[8];

static void note(struct tl_thread *self, void *arg)
{
	(void)self;
	(void)arg;
	steps++;
}

static struct tl_thread *waiter(void)
{
	struct tl_thread *thread;

	CHECK_EQ(tl_thread_create(sched, &thread, note, NULL, 1), 0);
	return thread;
}

static bool readable(int timeout_ms)
{
	struct pollfd poll_fd = { tl_sched_fd(sched), POLLIN, 0 };

	return MUST(poll(&poll_fd, 1, timeout_ms));
}

static void run_once_does_not_sleep(void)
{
	uint64_t start_us = now_us();

	sched = sched_new(0, 0, 0);
	CHECK_EQ(tl_sched_run_once(sched, -1), 0);
	CHECK_EQ(TL_CALL(sched, waiter(), &result, SYS_getppid), 0);
	CHECK_EQ(tl_wait(sched, waiter(), NULL, pipes[0], EPOLLIN, 60000 * MS), 0);
	/* The call and its continuation come first. */
	CHECK_EQ(tl_sched_run_once(sched, -1), 1);
	CHECK_EQ(result, getppid());
	CHECK_EQ(steps, 1);
	CHECK_EQ(tl_sched_run_once(sched, 0), 1);
	CHECK(now_us() - start_us < 30000000);
	start_us = now_us();
	CHECK_EQ(tl_sched_run_once(sched, 20 * MS), 1);
	CHECK(now_us() - start_us >= 20000);
	CHECK_EQ(steps, 1);
	MUST(write(pipes[1], "x", 1));
	CHECK_EQ(tl_sched_run_once(sched, -1), 0);
	CHECK_EQ(steps, 2);
	MUST(read(pipes[0], text, 1));
	tl_sched_destroy(sched);
}

static void fill_a_flush(struct tl_thread *self, void *arg)
{
	(void)self;
	(void)arg;
	for (int i = 0; i < 4; i++)
		CHECK_EQ(TL_CALL(sched, NULL, NULL, SYS_getppid), 0);
}

/* The flush is full, so that the look comes later, when nothing is left to do. */
static void run_once_does_not_sleep_behind_work(void)
{
	sched = sched_new(4, 0, 0);
	CHECK_EQ(tl_wait(sched, waiter(), NULL, pipes[0], EPOLLIN, -1), 0);
	CHECK_EQ(tl_thread_create(sched, NULL, fill_a_flush, NULL, 0), 0);
	alarm(60);	/* a sleep has no limit */
	CHECK_EQ(tl_sched_run_once(sched, -1), 1);
	alarm(0);
	tl_sched_destroy(sched);
}

static void descriptor_shows_events_and_times(void)
{
	sched = sched_new(0, 0, 0);
	steps = 0;
	CHECK(!readable(0));
	CHECK_EQ(tl_wait(sched, waiter(), NULL, pipes[0], EPOLLIN, -1), 0);
	/* The set does not have it yet. */
	CHECK_EQ(tl_sched_run_once(sched, 0), 1);
	CHECK(!readable(0));
	MUST(write(pipes[1], "x", 1));
	CHECK(readable(-1));
	CHECK_EQ(tl_sched_run_once(sched, 0), 0);
	CHECK_EQ(steps, 1);
	MUST(read(pipes[0], text, 1));
	CHECK(!readable(0));

	CHECK_EQ(tl_wait(sched, waiter(), &result, -1, 0, 20 * MS), 0);
	CHECK_EQ(tl_sched_run_once(sched, 0), 1);
	CHECK(readable(-1));
	CHECK_EQ(tl_sched_run_once(sched, 0), 0);
	CHECK_EQ(steps, 2);
	CHECK_EQ(result, 0);
	CHECK(!readable(0));
	tl_sched_destroy(sched);
}

static void again(struct tl_thread *self, void *arg)
{
	note(self, arg);
	if (steps < 1000)
		CHECK_EQ(tl_thread_create(sched, NULL, again, NULL, 0), 0);
}

/* A scheduler that always has something to do leaves the other loop its turn. */
static void descriptor_shows_work_that_is_left(void)
{
	int rounds = 0;

	sched = sched_new(0, 0, 0);
	steps = 0;
	CHECK(!readable(0));
	CHECK_EQ(tl_thread_create(sched, NULL, again, NULL, 0), 0);
	do {
		rounds++;
	} while (tl_sched_run_once(sched, 0) && readable(-1));
	CHECK_EQ(steps, 1000);
	CHECK_WITHIN(rounds, 2, 100);
	tl_sched_destroy(sched);
}

/* Two schedulers in one loop, which is an epoll set itself, play ping-pong. */
struct player {
	struct tl_sched *sched;
	int in, out;
	int64_t length;
	char ball[8];
	int hits;
};

static void hit(struct tl_thread *self, void *arg)
{
	struct player *player = arg;

	if (++player->hits == 100)
		CHECK_EQ(tl_event_remove(player->sched, player->in), 0);
	CHECK_EQ(TL_CALL(player->sched, NULL, &player->length, SYS_read, player->in, player->ball,
			 sizeof(player->ball)), 0);
	CHECK_EQ(TL_CALL(player->sched, NULL, NULL, SYS_write, player->out, "o", 1), 0);
	(void)self;
}

static void two_schedulers_live_in_one_loop(void)
{
	struct player players[2] = { 0 };
	struct epoll_event event;
	int ways[2][2], loop = MUST(epoll_create1(0)), left = 2;

	for (int i = 0; i < 2; i++) {
		MUST(pipe(ways[i]));
		players[i].sched = sched_new(0, 0, 0);
	}
	for (int i = 0; i < 2; i++) {
		players[i].in = ways[i][0];
		players[i].out = ways[1 - i][1];
		CHECK_EQ(tl_event_add(players[i].sched, players[i].in, EPOLLIN, hit, &players[i]),
			 0);
		event = (struct epoll_event){ .events = EPOLLIN, .data.ptr = &players[i] };
		MUST(epoll_ctl(loop, EPOLL_CTL_ADD, tl_sched_fd(players[i].sched), &event));
	}
	MUST(write(ways[0][1], "o", 1));
	while (left) {
		struct player *player;
		int again;

		CHECK_EQ(MUST(epoll_wait(loop, &event, 1, -1)), 1);
		player = event.data.ptr;
		again = tl_sched_run_once(player->sched, 0);
		CHECK(again >= 0);
		left -= !again;
	}
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(players[i].hits, 100);
		tl_sched_destroy(players[i].sched);
		close(ways[i][0]);
		close(ways[i][1]);
	}
	close(loop);
}

static void child(void)
{
	struct tl_thread *thread;

	CHECK_EQ(tl_sched_run_once(sched, 0), -EPERM);
	CHECK_EQ(tl_sched_fd(sched), -EPERM);
	CHECK_EQ(tl_sched_reserve(sched, 1), -EPERM);
	CHECK_EQ(tl_thread_create(sched, &thread, note, NULL, 1), 0);
	CHECK_EQ(tl_wait(sched, thread, NULL, pipes[0], EPOLLIN, 1), -EPERM);
	CHECK_EQ(tl_event_add(sched, pipes[0], EPOLLIN, note, NULL), -EPERM);
	tl_sched_destroy(sched);
}

/* A child shares the epoll set with its parent, and leaves it alone. */
static void child_leaves_the_set_alone(void)
{
	sched = sched_new(0, 0, 0);
	steps = 0;
	CHECK_EQ(tl_wait(sched, waiter(), NULL, pipes[0], EPOLLIN, -1), 0);
	CHECK_EQ(tl_sched_run_once(sched, 0), 1);
	CHECK_EXITED(child_run(child), 0);
	MUST(write(pipes[1], "x", 1));
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(steps, 1);
	MUST(read(pipes[0], text, 1));
	tl_sched_destroy(sched);
}

static void fork_and_wait(struct tl_thread *self, void *arg)
{
	pid_t *pid = arg;

	*pid = MUST(fork());
	if (*pid)
		CHECK_EQ(tl_wait(sched, tl_then(self, note, 1), NULL, -1, 0, 500 * MS), 0);
}

/* A thread of the parent's run has forked: the run ends in the child, which shares the timer. */
static void child_of_a_thread_leaves_the_timer_alone(void)
{
	struct tl_thread *thread;
	pid_t pid;
	int left;

	sched = sched_new(0, 0, 0);
	steps = 0;
	CHECK(!readable(0));
	CHECK_EQ(tl_thread_create(sched, &thread, fork_and_wait, &pid, 1), 0);
	CHECK_EQ(tl_wait(sched, thread, NULL, pipes[0], EPOLLIN, 400 * MS), 0);
	CHECK_EQ(tl_sched_run_once(sched, 0), 1);
	MUST(write(pipes[1], "x", 1));
	left = tl_sched_run_once(sched, 0);
	if (!pid) {
		CHECK_EQ(left, -EPERM);
		_exit(0);
	}
	CHECK_EQ(left, 1);
	CHECK_EXITED(child_wait(pid), 0);
	MUST(read(pipes[0], text, 1));
	CHECK_EQ(tl_event_remove(sched, pipes[0]), 0);
	while (tl_sched_run_once(sched, 0))
		CHECK(readable(60000));
	CHECK_EQ(steps, 1);
	tl_sched_destroy(sched);
}

int main(void)
{
	MUST(pipe(pipes));
	run_once_does_not_sleep();
	run_once_does_not_sleep_behind_work();
	descriptor_shows_events_and_times();
	descriptor_shows_work_that_is_left();
	two_schedulers_live_in_one_loop();
	child_leaves_the_set_alone();
	child_of_a_thread_leaves_the_timer_alone();
	return 0;
}
