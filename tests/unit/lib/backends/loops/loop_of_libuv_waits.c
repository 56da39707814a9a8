// SPDX-License-Identifier: GPL-2.0-only
/*
 * A loop of libuv, which is somebody else's, waits for the descriptors of a tl_psc and of a
 * scheduler beside a timer of its own: each completion comes once, the scheduler's threads run to
 * their end, and neither keeps the loop from its timer.
 */
#include "lib_check.h"

#include <sys/epoll.h>
#include <uv.h>

#define ENTRIES 32u
#define REQUESTS 4000u
#define BALLS 500
#define SILENCE_MS 30000

/* libuv can look up users. Nobody here does, and libc's function would want shared libraries. */
int __wrap_getpwuid_r(void);
int __wrap_getpwuid_r(void)
{
	FAIL("somebody looks for a user");
}

static uv_loop_t loop;
static uv_timer_t silence;
static int users;	/* of the loop that still have something to do */

static void loop_was_silent(uv_timer_t *timer)
{
	(void)timer;
	FAIL("nothing happened in the loop for %d ms, with %d users left", SILENCE_MS, users);
}

static void note_progress(void)
{
	CHECK_EQ(uv_timer_start(&silence, loop_was_silent, SILENCE_MS, 0), 0);
}

static void user_is_done(uv_poll_t *poll)
{
	CHECK_EQ(uv_poll_stop(poll), 0);
	uv_close((uv_handle_t *)poll, NULL);
	if (!--users)
		uv_close((uv_handle_t *)&silence, NULL);
}

static void wait_for(uv_poll_t *poll, int fd, uv_poll_cb callback, void *data)
{
	CHECK(fd >= 0);
	CHECK_EQ(uv_poll_init(&loop, poll, fd), 0);
	CHECK_EQ(uv_poll_start(poll, UV_READABLE, callback), 0);
	poll->data = data;
	users++;
}

/* ---- A tl_psc: requests go out as slots come free ---------------------------------------------*/

struct requester {
	struct tl_psc *psc;
	uint64_t sent, taken, sum;
};

static void send_what_fits(struct requester *requester)
{
	int slot;

	while (requester->sent < REQUESTS) {
		slot = TL_PSC_ADD(requester->psc, SYS_getppid);
		if (slot < 0)
			break;
		CHECK_EQ(tl_psc_set_data(requester->psc, (unsigned int)slot, ++requester->sent),
			 0);
	}
	CHECK(tl_psc_notify(requester->psc) >= 0);
}

static void completions_came(uv_poll_t *poll, int status, int events)
{
	struct requester *requester = poll->data;
	struct tl_psc_completion completion;

	CHECK_EQ(status, 0);
	CHECK_EQ(events, UV_READABLE);
	note_progress();
	while (tl_psc_next(requester->psc, &completion) == 1) {
		CHECK_EQ(completion.result, getppid());
		requester->sum += completion.user_data;
		requester->taken++;
	}
	if (requester->taken == REQUESTS)
		user_is_done(poll);
	else
		send_what_fits(requester);
}

/* ---- A scheduler: a byte goes round through a pipe --------------------------------------------*/

struct player {
	struct tl_sched *sched;
	int ends[2];
	int64_t length;
	char ball;
	int hits;
};

static void hit(struct tl_thread *self, void *arg)
{
	struct player *player = arg;

	(void)self;
	if (++player->hits == BALLS)
		CHECK_EQ(tl_event_remove(player->sched, player->ends[0]), 0);
	CHECK_EQ(TL_CALL(player->sched, NULL, &player->length, SYS_read, player->ends[0],
			 &player->ball, 1), 0);
	CHECK_EQ(TL_CALL(player->sched, NULL, NULL, SYS_write, player->ends[1], "o", 1), 0);
}

static void scheduler_has_work(uv_poll_t *poll, int status, int events)
{
	struct player *player = poll->data;
	int left;

	CHECK_EQ(status, 0);
	CHECK_EQ(events, UV_READABLE);
	note_progress();
	left = tl_sched_run_once(player->sched, 0);
	CHECK(left >= 0);
	if (!left)
		user_is_done(poll);
}

int main(void)
{
	struct requester requester = { 0 };
	struct player player = { .sched = sched_new(0, 0, 0) };
	uv_poll_t polls[2];

	CHECK_EQ(uv_loop_init(&loop), 0);
	CHECK_EQ(uv_timer_init(&loop, &silence), 0);
	note_progress();

	CHECK_EQ(tl_psc_create(&requester.psc, ENTRIES, 0, LIB_FLAGS | TL_COMPLETIONS), 0);
	CHECK_EQ(tl_psc_start(requester.psc, 2), 0);
	wait_for(&polls[0], tl_psc_fd(requester.psc), completions_came, &requester);
	send_what_fits(&requester);

	MUST(pipe(player.ends));
	CHECK_EQ(tl_event_add(player.sched, player.ends[0], EPOLLIN, hit, &player), 0);
	wait_for(&polls[1], tl_sched_fd(player.sched), scheduler_has_work, &player);
	MUST(write(player.ends[1], "o", 1));

	CHECK_EQ(uv_run(&loop, UV_RUN_DEFAULT), 0);
	CHECK_EQ(requester.sum, (uint64_t)REQUESTS * (REQUESTS + 1) / 2);
	CHECK_EQ(player.hits, BALLS);
	CHECK_EQ(uv_loop_close(&loop), 0);
	tl_psc_destroy(requester.psc);
	tl_sched_destroy(player.sched);
	return 0;
}
