// SPDX-License-Identifier: GPL-2.0-only
/*
 * tl_wait(): a thread goes on when a descriptor shows what it waits for, when the time is over, or
 * when the wait is cancelled. No event is lost with EPOLLET, and none is invented without it. A
 * thread that goes on as its own continuation (tl_then()) is one thread.
 */
#include "lib_check.h"

#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define MS 1000000l
#define CONNECTIONS 100
#define REQUESTS 20

static struct tl_sched *sched;
static int64_t shown;
static int pair[2];
static int steps;
static char text[64];

static void note(struct tl_thread *self, void *arg)
{
	(void)self;
	(void)arg;
	steps++;
}

static struct tl_thread *waiter(tl_entry entry, void *arg)
{
	struct tl_thread *thread;

	CHECK_EQ(tl_thread_create(sched, &thread, entry, arg, 1), 0);
	return thread;
}

static void begin(void)
{
	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
	sched = sched_new(0, 0, 0);
	steps = 0;
	shown = -1;
}

static void end(void)
{
	tl_sched_destroy(sched);
	close(pair[0]);
	close(pair[1]);
}

static void time_passes(void)
{
	static int64_t results[20];
	uint64_t start_us;

	begin();
	start_us = now_us();
	for (int i = 0; i < 20; i++)
		CHECK_EQ(tl_wait(sched, waiter(note, NULL), &results[i], -1, 0,
				 (i * 7 % 20 + 1) * MS), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK(now_us() - start_us >= 20000);
	CHECK_EQ(steps, 20);
	for (int i = 0; i < 20; i++)
		CHECK_EQ(results[i], 0);
	end();
}

static struct ordered {
	uint64_t from_us, until_us;	/* when its time is over, as far as we know */
	bool over;
} ordered[50];

/* A busy machine sets the waits at any distance: none may go on before what was surely due. */
static void in_order(struct tl_thread *self, void *arg)
{
	struct ordered *mine = arg;

	(void)self;
	for (int i = 0; i < 50; i++)
		CHECK(ordered[i].over || ordered[i].until_us >= mine->from_us);
	mine->over = true;
	steps++;
}

static void times_end_in_order(void)
{
	begin();
	for (int i = 0; i < 50; i++) {
		uint64_t time_us = (uint64_t)(i * 37 % 50) * 500;

		ordered[i] = (struct ordered){ .from_us = now_us() + time_us };
		CHECK_EQ(tl_wait(sched, waiter(in_order, &ordered[i]), NULL, -1, 0,
				 (int64_t)time_us * 1000), 0);
		ordered[i].until_us = now_us() + time_us;
	}
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(steps, 50);
	end();
}

static void descriptor_comes_before_the_time(void)
{
	for (uint32_t edge = 0; edge <= EPOLLET; edge += EPOLLET) {
		uint64_t start_us = now_us();

		begin();
		CHECK_EQ(tl_wait(sched, waiter(note, NULL), &shown, pair[0], EPOLLIN | edge,
				 60000 * MS), 0);
		CHECK_EQ(TL_CALL(sched, NULL, NULL, SYS_write, pair[1], "x", 1), 0);
		CHECK_EQ(tl_sched_run(sched), 0);
		CHECK_EQ(steps, 1);
		CHECK_EQ(shown, EPOLLIN);
		CHECK(now_us() - start_us < 30000000);
		end();
		if (edge)
			break;
	}
}

static void time_comes_before_the_descriptor(void)
{
	begin();
	CHECK_EQ(tl_wait(sched, waiter(note, NULL), &shown, pair[0], EPOLLIN, 5 * MS), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(steps, 1);
	CHECK_EQ(shown, 0);
	/* Nobody waits any more: what comes now is kept for the next wait. */
	MUST(write(pair[1], "x", 1));
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(tl_wait(sched, waiter(note, NULL), &shown, pair[0], EPOLLIN, 0), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(shown, EPOLLIN);
	end();
}

/* What the scheduler queues for a wait is no call of the program, complete or not. */
static void waits_are_not_counted_as_calls(void)
{
	begin();
	CHECK_EQ(tl_wait(sched, waiter(note, NULL), &shown, pair[0], EPOLLIN, -1), 0);
	CHECK_EQ(sched_stats(sched).calls, 0);
	CHECK_EQ(TL_CALL(sched, NULL, NULL, SYS_write, pair[1], "x", 1), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(shown, EPOLLIN);
	CHECK_EQ(sched_stats(sched).calls, 1);
	end();
}

static void bad_waits_are_refused(void)
{
	struct tl_thread *thread;
	int file;

	begin();
	file = MUST(memfd_create("ready", 0));
	thread = waiter(note, NULL);
	CHECK_EQ(tl_wait(sched, NULL, &shown, pair[0], EPOLLIN, -1), -EINVAL);
	CHECK_EQ(tl_wait(sched, thread, &shown, pair[0], 1u << 20, -1), -EINVAL);
	CHECK_EQ(tl_wait_cancel(thread), -ENOENT);
	CHECK_EQ(tl_wait(sched, thread, &shown, pair[0], EPOLLIN, -1), 0);
	CHECK_EQ(tl_wait(sched, thread, &shown, pair[1], EPOLLIN, -1), -EINVAL);
	CHECK_EQ(tl_thread_sync(thread), -EINVAL);
	CHECK_EQ(tl_wait(sched, waiter(note, NULL), NULL, pair[0], EPOLLIN | EPOLLET, -1),
		 -EINVAL);
	CHECK_EQ(tl_event_add(sched, pair[0], EPOLLIN | EPOLLET, note, NULL), -EINVAL);
	CHECK_EQ(tl_wait_cancel(thread), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(steps, 1);
	CHECK_EQ(shown, -ECANCELED);
	/* What the kernel refuses is a result: it refuses when the flush asks it. */
	CHECK_EQ(tl_wait(sched, waiter(note, NULL), &shown, file, EPOLLIN, -1), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(shown, -EPERM);
	CHECK_EQ(steps, 2);
	close(file);
	CHECK_EQ(tl_wait(sched, waiter(note, NULL), &shown, file, EPOLLIN, -1), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(shown, -EBADF);
	end();
}

static void removal_cancels_waits(void)
{
	int64_t other = -1;
	int number;

	begin();
	CHECK_EQ(tl_wait(sched, waiter(note, NULL), &shown, pair[0], EPOLLIN, 60000 * MS), 0);
	CHECK_EQ(tl_wait(sched, waiter(note, NULL), &other, pair[0], EPOLLPRI, -1), 0);
	CHECK_EQ(tl_event_remove(sched, pair[0]), 0);
	CHECK_EQ(tl_event_remove(sched, pair[0]), -ENOENT);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(steps, 2);
	CHECK_EQ(shown, -ECANCELED);
	CHECK_EQ(other, -ECANCELED);
	/* The number belongs to another file now. */
	number = pair[0];
	MUST(close(pair[0]));
	MUST(close(pair[1]));
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	CHECK_EQ(pair[0], number);
	MUST(write(pair[1], "x", 1));
	CHECK_EQ(tl_wait(sched, waiter(note, NULL), &shown, pair[0], EPOLLIN | EPOLLET, -1), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(shown, EPOLLIN);
	end();
}

static void two_wait_for_one_descriptor(void)
{
	int64_t writable = -1;

	begin();
	CHECK_EQ(tl_wait(sched, waiter(note, NULL), &shown, pair[0], EPOLLIN, -1), 0);
	CHECK_EQ(tl_wait(sched, waiter(note, NULL), &writable, pair[0], EPOLLOUT, -1), 0);
	CHECK_EQ(tl_sched_run_once(sched, -1), 1);
	CHECK_EQ(steps, 1);
	CHECK_EQ(writable, EPOLLOUT);
	CHECK_EQ(shown, -1);
	/* It stays writable, which nobody wants: a scheduler that sleeps must not spin over it. */
	CHECK_EQ(tl_wait(sched, waiter(note, NULL), NULL, -1, 0, 30 * MS), 0);
	CHECK_EQ(tl_wait(sched, waiter(note, NULL), NULL, pair[1], EPOLLIN, 40 * MS), 0);
	CHECK_EQ(TL_CALL(sched, NULL, NULL, SYS_getppid), 0);
	while (steps < 3)
		CHECK_EQ(tl_sched_run_once(sched, -1), 1);
	CHECK_WITHIN(sched_stats(sched).looks, 2, 20);
	MUST(write(pair[1], "x", 1));
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(shown, EPOLLIN);
	end();
}

/* ---- A server and its clients -------------------------------------------------------------- */

struct connection {
	int server, client;
	uint32_t edge;
	int64_t length, shown;
	char text[8];
	int requests;
	bool lazy;		/* waits before each read, and else after -EAGAIN */
};

static struct connection connections[CONNECTIONS];

static void server_readable(struct tl_thread *self, void *arg);

static void server_read(struct tl_thread *self, void *arg)
{
	struct connection *connection = arg;

	if (connection->length == -EAGAIN) {
		CHECK_EQ(tl_wait(sched, tl_then(self, server_readable, 1), &connection->shown,
				 connection->server, EPOLLIN | connection->edge, 60000 * MS), 0);
		return;
	}
	if (!connection->length) {
		CHECK_EQ(connection->requests, REQUESTS);
		if (connection->shown != -1)
			CHECK_EQ(tl_event_remove(sched, connection->server), 0);
		CHECK_EQ(TL_CALL(sched, NULL, NULL, SYS_close, connection->server), 0);
		steps++;
		return;
	}
	CHECK_EQ(connection->length, 3);
	connection->requests++;
	CHECK_EQ(TL_CALL(sched, NULL, NULL, SYS_write, connection->server, "yes", 3), 0);
	if (connection->lazy) {
		connection->length = -EAGAIN;
		server_read(self, arg);
	} else {
		server_readable(self, arg);
	}
}

static void server_readable(struct tl_thread *self, void *arg)
{
	struct connection *connection = arg;

	CHECK(connection->shown != 0);
	CHECK_EQ(TL_CALL(sched, tl_then(self, server_read, 1), &connection->length, SYS_read,
			 connection->server, connection->text, sizeof(connection->text)), 0);
}

static void client(struct connection *all)
{
	char answer[8];

	for (int request = 0; request < REQUESTS; request++) {
		for (int i = 0; i < CONNECTIONS; i++)
			CHECK_EQ(write(all[i].client, "how", 3), 3);
		for (int i = 0; i < CONNECTIONS; i++)
			CHECK_EQ(read(all[i].client, answer, sizeof(answer)), 3);
	}
}

static void server_serves_all(void)
{
	struct tl_sched_stats stats;
	pid_t pid;

	begin();
	for (int i = 0; i < CONNECTIONS; i++) {
		struct connection *connection = &connections[i];
		int fds[2];

		MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
		*connection = (struct connection){
			.server = fds[0],
			.client = fds[1],
			.edge = i & 1 ? EPOLLET : 0,
			.shown = -1,
			.lazy = i & 2,
		};
		MUST(fcntl(fds[0], F_SETFL, O_NONBLOCK));
		CHECK_EQ(tl_thread_create(sched, NULL, server_readable, connection, 0), 0);
	}
	pid = MUST(fork());
	if (!pid) {
		client(connections);
		_exit(0);
	}
	for (int i = 0; i < CONNECTIONS; i++)
		MUST(close(connections[i].client));
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EXITED(child_wait(pid), 0);
	CHECK_EQ(steps, CONNECTIONS);
	stats = sched_stats(sched);
	CHECK(stats.looks < stats.calls / 2);
	end();
}

/* ---- Crossings ------------------------------------------------------------------------------- */

#define ECHOES 8
#define ECHO_ROUNDS 50

struct echo {
	int fds[2];
	int64_t length;
	char text[4];
	int rounds;
};

static void echo_readable(struct tl_thread *self, void *arg);

static void echo_read(struct tl_thread *self, void *arg)
{
	struct echo *echo = arg;

	CHECK_EQ(echo->length, 1);
	if (++echo->rounds == ECHO_ROUNDS)
		return;
	CHECK_EQ(TL_CALL(sched, NULL, NULL, SYS_write, echo->fds[1], "x", 1), 0);
	CHECK_EQ(tl_wait(sched, tl_then(self, echo_readable, 1), NULL, echo->fds[0],
			 EPOLLIN | EPOLLET, -1), 0);
}

static void echo_readable(struct tl_thread *self, void *arg)
{
	struct echo *echo = arg;

	CHECK_EQ(TL_CALL(sched, tl_then(self, echo_read, 1), &echo->length, SYS_read, echo->fds[0],
			 echo->text, sizeof(echo->text)), 0);
}

/* All read by one crossing; all write, and the scheduler looks and sleeps, by another. */
static void a_round_is_two_crossings(void)
{
	static struct echo echoes[ECHOES];
	struct tl_sched_stats stats;

	begin();
	for (int i = 0; i < ECHOES; i++) {
		struct echo *echo = &echoes[i];

		*echo = (struct echo){ .rounds = 0 };
		MUST(pipe2(echo->fds, O_NONBLOCK));
		MUST(write(echo->fds[1], "x", 1));
		CHECK_EQ(tl_thread_create(sched, NULL, echo_readable, echo, 0), 0);
	}
	CHECK_EQ(tl_sched_run(sched), 0);
	stats = sched_stats(sched);
	CHECK_EQ(stats.calls, ECHOES * (2 * ECHO_ROUNDS - 1));
	CHECK_WITHIN(stats.looks, ECHO_ROUNDS - 1, ECHO_ROUNDS + 4);
	if (tl_sched_backend(sched) == TL_BACKEND_MODULE)
		CHECK_WITHIN(stats.crossings, 2 * ECHO_ROUNDS - 1, 2 * ECHO_ROUNDS + 4);
	for (int i = 0; i < ECHOES; i++) {
		close(echoes[i].fds[0]);
		close(echoes[i].fds[1]);
	}
	end();
}

/* ---- Events ---------------------------------------------------------------------------------- */

static void event_ends(struct tl_thread *self, void *arg)
{
	(void)arg;
	CHECK_EQ(self->events & EPOLLIN, EPOLLIN);
	steps++;
	CHECK_EQ(tl_event_remove(sched, pair[0]), 0);
}

static void event_reads(struct tl_thread *self, void *arg)
{
	CHECK_EQ(self->events, EPOLLIN);
	CHECK_EQ(TL_CALL(sched, tl_then(self, event_ends, 1), arg, SYS_read, pair[0], text, 1), 0);
	/* Another event comes while this one's thread goes on: it creates no second thread. */
	CHECK_EQ(TL_CALL(sched, NULL, NULL, SYS_write, pair[1], "y", 1), 0);
}

static void thread_of_an_event_goes_on(void)
{
	for (int edge = 0; edge < 2; edge++) {
		begin();
		CHECK_EQ(tl_event_add(sched, pair[0], EPOLLIN | (edge ? EPOLLET : 0), event_reads,
				      &shown), 0);
		MUST(write(pair[1], "x", 1));
		CHECK_EQ(tl_sched_run(sched), 0);
		CHECK_EQ(shown, 1);
		CHECK_EQ(steps, 1);
		CHECK_EQ(sched_stats(sched).threads_run, 2);
		end();
	}
}

static void on_read(struct tl_thread *self, void *arg)
{
	(void)arg;
	CHECK_EQ(self->events, EPOLLIN);
	steps += 1;
	CHECK_EQ(TL_CALL(sched, NULL, NULL, SYS_read, pair[0], text, 1), 0);
}

static void on_write(struct tl_thread *self, void *arg)
{
	(void)arg;
	CHECK_EQ(self->events, EPOLLOUT);
	steps += 100;
}

static void descriptor_has_two_events(void)
{
	begin();
	CHECK_EQ(tl_event_add(sched, pair[0], EPOLLIN | EPOLLET, on_read, NULL), 0);
	CHECK_EQ(tl_event_add(sched, pair[0], EPOLLOUT | EPOLLET, on_write, NULL), 0);
	CHECK_EQ(tl_sched_run_once(sched, 0), 1);
	CHECK_EQ(steps, 100);
	MUST(write(pair[1], "x", 1));
	CHECK_EQ(tl_sched_run_once(sched, -1), 1);
	CHECK_EQ(steps % 100, 1);
	CHECK_EQ(tl_event_remove(sched, pair[0]), 0);
	CHECK_EQ(tl_sched_run_once(sched, -1), 0);
	end();
}

int main(void)
{
	time_passes();
	times_end_in_order();
	descriptor_comes_before_the_time();
	time_comes_before_the_descriptor();
	waits_are_not_counted_as_calls();
	bad_waits_are_refused();
	removal_cancels_waits();
	two_wait_for_one_descriptor();
	server_serves_all();
	a_round_is_two_crossings();
	thread_of_an_event_goes_on();
	descriptor_has_two_events();
	return 0;
}
