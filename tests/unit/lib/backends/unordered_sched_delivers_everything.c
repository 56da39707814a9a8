// SPDX-License-Identifier: GPL-2.0-only
/*
 * A scheduler whose calls may be made in any order delivers each result to its own continuation,
 * makes what a continuation orders in that order, and does not sleep for events before it has made
 * the calls that may bring them about.
 */
#include "lib_check.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define CHAINS 40
#define STEPS 25
#define FDS 7
#define ROUNDS_MAX 500

struct chain {
	int64_t result;
	int fd, steps;
	char text[8];
};

static struct chain chains[CHAINS];
static int fds[FDS];

static struct tl_sched *unordered_new(uint32_t flush_at)
{
	struct tl_sched_config config = {
		.size = sizeof(config), .flags = LIB_FLAGS | TL_UNORDERED, .flush_at = flush_at,
	};
	struct tl_sched *sched = NULL;

	CHECK_EQ(tl_sched_create(&sched, &config), 0);
	return sched;
}

/* Each step of a chain finds the result of the one before: another length each. */
static void step(struct tl_thread *self, void *arg)
{
	struct chain *chain = arg;
	struct tl_thread *then;

	if (chain->steps)
		CHECK_EQ(chain->result, 1 + chain->steps % 5);
	if (chain->steps++ == STEPS)
		return;
	CHECK_EQ(tl_thread_create(tl_thread_sched(self), &then, step, chain, 1), 0);
	chain->result = 0;
	CHECK_EQ(TL_CALL(tl_thread_sched(self), then, &chain->result, SYS_write,
			 fds[(chain->fd + chain->steps * 3) % FDS], chain->text,
			 1 + chain->steps % 5), 0);
}

static void chains_go_on_with_their_own_results(uint32_t flush_at)
{
	struct tl_sched *sched = unordered_new(flush_at);
	struct tl_sched_stats stats;

	for (int i = 0; i < CHAINS; i++) {
		chains[i] = (struct chain){ .fd = i * 5 };
		CHECK_EQ(tl_thread_create(sched, NULL, step, &chains[i], 0), 0);
	}
	CHECK_EQ(tl_sched_run(sched), 0);
	for (int i = 0; i < CHAINS; i++)
		CHECK_EQ(chains[i].steps, STEPS + 1);
	stats = sched_stats(sched);
	CHECK_EQ(stats.calls, CHAINS * STEPS);
	tl_sched_destroy(sched);
}

/* Each ends a flush early, with some of its calls complete and not the oldest. */
static void signals_deliver_nothing_twice(void)
{
	on_signal(SIGALRM, count_signal, 0);
	alarm_ms(1, 1);
	for (int round = 0; round < ROUNDS_MAX && handled < 50; round++)
		chains_go_on_with_their_own_results(32);
	alarm_ms(0, 0);
	CHECK(handled > 0);
}

static void run_never(struct tl_thread *self, void *arg)
{
	(void)self;
	(void)arg;
	FAIL("a thread ran that waits for one more call");
}

/* The read is made first, and interrupted; the call queued before it, in the next flush. */
static void what_was_interrupted_is_delivered_once(void)
{
	struct tl_sched *sched = unordered_new(32);
	int64_t first = 0, second = 0;
	struct tl_thread *then;
	int pipes[2];
	pid_t waker;
	char byte;

	MUST(pipe(pipes));
	on_signal(SIGALRM, count_signal, 0);
	CHECK_EQ(tl_thread_create(sched, &then, run_never, NULL, 3), 0);
	CHECK_EQ(TL_CALL(sched, then, &first, SYS_write, fds[0], "x", 1), 0);
	CHECK_EQ(TL_CALL(sched, then, &second, SYS_read, pipes[0], &byte, 1), 0);
	waker = signal_when_asleep(SIGALRM);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EXITED(child_wait(waker), 0);
	CHECK_EQ(first, 1);
	CHECK_EQ(second, -EINTR);
	CHECK_EQ(sched_stats(sched).calls, 2);
	tl_sched_destroy(sched);
	close(pipes[0]);
	close(pipes[1]);
}

static bool came;

static void receive(struct tl_thread *self, void *arg)
{
	int *sockets = arg;
	static char byte;

	came = true;
	CHECK_EQ(TL_CALL(tl_thread_sched(self), NULL, NULL, SYS_recvfrom, sockets[1], &byte, 1), 0);
	CHECK_EQ(tl_event_remove(tl_thread_sched(self), sockets[1]), 0);
}

static void send_one(struct tl_thread *self, void *arg)
{
	int *sockets = arg;

	/* Nobody waits for its result. */
	CHECK_EQ(TL_CALL(tl_thread_sched(self), NULL, NULL, SYS_sendto, sockets[0], "x", 1), 0);
}

static void no_sleep_before_what_ends_it(void)
{
	struct tl_sched *sched = unordered_new(32);
	int sockets[2];

	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	CHECK_EQ(tl_event_add(sched, sockets[1], POLLIN, receive, sockets), 0);
	CHECK_EQ(tl_thread_create(sched, NULL, send_one, sockets, 0), 0);
	alarm(600);	/* for what hangs */
	CHECK_EQ(tl_sched_run(sched), 0);
	alarm(0);
	CHECK(came);
	tl_sched_destroy(sched);
	close(sockets[0]);
	close(sockets[1]);
}

static void settings_have_bounds(void)
{
	struct tl_sched_config config = {
		.size = sizeof(config), .flags = LIB_FLAGS | TL_UNORDERED,
		.flush_at = TL_UNORDERED_ENTRIES_MAX + 1,
	};
	struct tl_sched *sched = NULL;

	CHECK_EQ(tl_sched_create(&sched, &config), -EINVAL);
	config.flush_at = TL_UNORDERED_ENTRIES_MAX;
	CHECK_EQ(tl_sched_create(&sched, &config), 0);
	tl_sched_destroy(sched);
	config.entries = TL_ENTRIES_MAX;
	CHECK_EQ(tl_sched_create(&sched, &config), -EINVAL);
}

int main(void)
{
	for (int i = 0; i < FDS; i++)
		fds[i] = MUST(memfd_create("steps", 0));
	chains_go_on_with_their_own_results(1);
	chains_go_on_with_their_own_results(16);
	chains_go_on_with_their_own_results(32);
	signals_deliver_nothing_twice();
	what_was_interrupted_is_delivered_once();
	no_sleep_before_what_ends_it();
	settings_have_bounds();
	return 0;
}
