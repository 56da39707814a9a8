// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The times at which the waits of a scheduler's threads end: a heap of them, and the clock. It does
 * not own the waits, which are in event.c.
 *
 * A server gives each wait a limit that is almost never reached. So a wait that has ended leaves
 * its place in the heap as it is, and the thread's next wait, whose end is later, takes it over: a
 * thread stands in the heap once, with the end of its wait or an earlier time.
 */
#include "state.h"

#include <errno.h>
#include <limits.h>
#include <time.h>

#define TIMERS_ROOM_FIRST 64u
#define MS_NS 1000000u
#define EXACT_NS 1000000000	/* shorter times are exact to a millisecond */
#define LATE_TICKS 16u		/* the clock of ticks is hardly ever later than this */

static uint64_t ns_of(const struct timespec *time)
{
	return (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
}

static uint64_t now_of(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return ns_of(&now);
}

/*
 * The kernel's own clock of ticks: it is cheap everywhere, and about a tick late. It is read each
 * time, because a thread, or the program between two runs, may have worked for any time.
 */
static uint64_t now_ns(void)
{
	return now_of(CLOCK_MONOTONIC_COARSE);
}

/* Is the time over? The exact clock is asked only where it can make a difference. */
static bool is_over(const struct events *events, uint64_t due_ns)
{
	uint64_t now = now_ns();

	return due_ns <= now || (due_ns - now <= LATE_TICKS * events->tick_ns &&
				 due_ns <= now_of(CLOCK_MONOTONIC));
}

static void timer_store(struct events *events, uint32_t at, struct timer timer)
{
	events->timers[at] = timer;
	timer.thread->timer = at + 1;
}

static void timer_rise(struct events *events, uint32_t at, struct timer timer)
{
	while (at && events->timers[(at - 1) / 2].due_ns > timer.due_ns) {
		timer_store(events, at, events->timers[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	timer_store(events, at, timer);
}

static void timer_sink(struct events *events, uint32_t at, struct timer timer)
{
	uint32_t child;

	while ((child = 2 * at + 1) < events->timers_n) {
		if (child + 1 < events->timers_n &&
		    events->timers[child + 1].due_ns < events->timers[child].due_ns)
			child++;
		if (events->timers[child].due_ns >= timer.due_ns)
			break;
		timer_store(events, at, events->timers[child]);
		at = child;
	}
	timer_store(events, at, timer);
}

int tl_timer_set(struct events *events, struct thread *thread, int64_t timeout_ns)
{
	uint64_t due;
	uint32_t room = events->timers_room ? 2 * events->timers_room : TIMERS_ROOM_FIRST;
	struct timer *timers;
	struct timespec tick;

	if (!events->tick_ns) {
		clock_getres(CLOCK_MONOTONIC_COARSE, &tick);
		events->tick_ns = ns_of(&tick);
	}
	/* The clock of ticks is late: a time that counts from it must be longer. */
	if (timeout_ns < EXACT_NS)
		due = timeout_ns ? now_of(CLOCK_MONOTONIC) + (uint64_t)timeout_ns : 1;
	else
		due = now_ns() + LATE_TICKS * events->tick_ns + (uint64_t)timeout_ns;
	if (thread->timer) {
		if (events->timers[thread->timer - 1].due_ns > due)
			timer_rise(events, thread->timer - 1, (struct timer){ due, thread });
	} else {
		if (events->timers_n == events->timers_room) {
			timers = tl_heap_resize(events->timers, room, sizeof(*timers));
			if (!timers)
				return -ENOMEM;
			events->timers = timers;
			events->timers_room = room;
		}
		timer_rise(events, events->timers_n++, (struct timer){ due, thread });
	}
	thread->wait_due_ns = due;
	return 0;
}

void tl_timer_drop(struct events *events, struct thread *thread)
{
	uint32_t at = thread->timer - 1;
	struct timer last = events->timers[--events->timers_n];

	thread->timer = 0;
	if (last.thread == thread)
		return;
	if (at && events->timers[(at - 1) / 2].due_ns > last.due_ns)
		timer_rise(events, at, last);
	else
		timer_sink(events, at, last);
}

uint64_t tl_timers_next(struct events *events)
{
	while (events->timers_n) {
		struct timer first = events->timers[0];

		if (first.thread->wait_due_ns == first.due_ns)
			return first.due_ns;
		/* That wait has ended. */
		first.due_ns = first.thread->wait_due_ns;
		if (first.due_ns == TIME_NEVER)
			tl_timer_drop(events, first.thread);
		else
			timer_sink(events, 0, first);
	}
	return TIME_NEVER;
}

struct thread *tl_timer_expired(struct events *events)
{
	struct thread *thread;

	if (!events->timers_n || !is_over(events, tl_timers_next(events)))
		return NULL;
	thread = events->timers[0].thread;
	tl_timer_drop(events, thread);
	return thread;
}

int tl_events_timeout_ms(struct events *events, int64_t limit_ns)
{
	uint64_t due = limit_ns ? tl_timers_next(events) : TIME_NEVER, now, left;

	if (due != TIME_NEVER) {
		now = now_ns();
		left = due > now ? due - now : 0;
		if (limit_ns < 0 || left < (uint64_t)limit_ns)
			limit_ns = (int64_t)left;
	}
	if (limit_ns < 0)
		return -1;
	limit_ns = limit_ns / MS_NS + (limit_ns % MS_NS != 0);
	return limit_ns < INT_MAX ? (int)limit_ns : INT_MAX;
}
