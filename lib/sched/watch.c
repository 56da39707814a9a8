// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The descriptors that a scheduler watches. It owns the kernel's epoll set, what the set is asked
 * to show of each descriptor, and the descriptor by which another loop waits for the scheduler.
 * event.c owns the waits and events that want to know what a descriptor shows.
 *
 * A descriptor is put into the set by a queued epoll_ctl(2) when something waits for it first, and
 * stays there. Without EPOLLET the kernel shows it at each look for as long as it is ready; if
 * nobody wants that twice in a row, the set asks for less until somebody wants it again.
 */
#include "enter.h"
#include "state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>

/* The mark's highest bit, which is clear in an address and in a small number. */
#define MARK (UINT32_C(1) << 31)

void tl_events_init(struct events *events)
{
	events->set.fd = -1;
	events->mark = MARK | (uint32_t)((uintptr_t)events >> 4);
	events->timer_fd = -1;
	events->armed_ns = TIME_NEVER;
	events->looked = LOOK_NONE;
}

int tl_events_open(struct tl_sched *sched)
{
	struct events *events = &sched->events;
	struct tl_batch *batch = sched->head.batch;
	size_t slots = (size_t)(batch->end - batch->requests);

	if (!batch->requests)
		return -EPERM;
	if (events->set.fd >= 0)
		return 0;
	if (!events->control_events)
		events->control_events =
			tl_heap_resize(NULL, slots, sizeof(*events->control_events));
	if (!events->control_events)
		return -ENOMEM;
	return tl_set_open(&events->set);
}

int tl_events_check(const struct events *events)
{
	return tl_set_check(&events->set, events->set.member);
}

void tl_events_free(struct events *events)
{
	struct registration *registration;

	for (uint32_t i = 0; i < events->chunks_n; i++) {
		for (uint32_t k = 0; events->chunks[i] && k < CHUNK_WATCHES; k++) {
			struct watch *watch = &events->chunks[i][k];

			while ((registration = watch->registrations)) {
				watch->registrations = registration->next;
				free(registration);
			}
		}
		free(events->chunks[i]);
	}
	while ((registration = events->unused)) {
		events->unused = registration->next;
		free(registration);
	}
	free(events->chunks);
	free(events->control_events);
	free(events->timers);
	tl_set_close(&events->set, events->timer_fd);
}

/* ---- Descriptors --------------------------------------------------------------------------- */

static __attribute__((noinline)) struct watch *watch_make(struct events *events, uint32_t fd)
{
	uint32_t chunk = fd / CHUNK_WATCHES, n = events->chunks_n ? events->chunks_n : 4;
	struct watch **chunks, *watches;

	while (n <= chunk)
		n *= 2;
	if (n != events->chunks_n) {
		chunks = tl_heap_resize(events->chunks, n, sizeof(struct watch *));
		if (!chunks)
			return NULL;
		memset(chunks + events->chunks_n, 0, (n - events->chunks_n) * sizeof(*chunks));
		events->chunks = chunks;
		events->chunks_n = n;
	}
	watches = tl_heap_resize(NULL, CHUNK_WATCHES, sizeof(*watches));
	if (!watches)
		return NULL;
	memset(watches, 0, CHUNK_WATCHES * sizeof(*watches));
	for (uint32_t i = 0; i < CHUNK_WATCHES; i++)
		watches[i].fd = (int)(chunk * CHUNK_WATCHES + i);
	events->chunks[chunk] = watches;
	return &watches[fd % CHUNK_WATCHES];
}

struct watch *tl_watch_get(struct events *events, int fd)
{
	struct watch *watch = watch_find(events, (uint32_t)fd);

	return watch ? watch : watch_make(events, (uint32_t)fd);
}

static uint32_t mark_of(const struct events *events, const struct watch *watch)
{
	return events->mark ^ watch->generation;
}

static struct epoll_event event_of(const struct events *events, const struct watch *watch)
{
	return (struct epoll_event){
		.events = watch->interest,
		.data.u64 = (uint64_t)mark_of(events, watch) << DATA_BITS |
			    ((uint32_t)watch->fd + 1),
	};
}

struct watch *tl_watch_of(const struct events *events, uint64_t data)
{
	struct watch *watch = watch_find(events, (uint32_t)data - 1);

	return watch && mark_of(events, watch) == (uint32_t)(data >> DATA_BITS) ? watch : NULL;
}

int tl_watch_control(const struct events *events, const struct watch *watch, int op)
{
	struct epoll_event event = event_of(events, watch);
	int error = tl_events_check(events);

	if (error)
		return error;
	return (int)raw_syscall(SYS_epoll_ctl, (uint64_t)events->set.fd, (uint64_t)op,
				(uint64_t)watch->fd, (uintptr_t)&event, 0, 0);
}

/* One is queued already. A stop between the two must not make the watch seem to have none left. */
static void only_the_newest_counts(struct tl_sched *sched, struct watch *watch)
{
	const struct tl_batch *batch = sched->head.batch;
	struct tl_completion *call = sched->head.completions;

	for (const struct tl_request *at = batch->requests; at != batch->next; at++, call++)
		if (call->result == &watch->control)
			call->result = NULL;
}

/* Queues an epoll_ctl(2). Its result is looked at when it is complete. */
int tl_watch_control_queue(struct tl_sched *sched, struct watch *watch, int op)
{
	struct events *events = &sched->events;
	int slot = tl_sched_reserve(sched, 1), error;
	struct epoll_event *event;

	if (slot < 0)
		return slot;
	/* Once for each flush: the set is checked before the first of these calls is queued. */
	error = events->controls ? 0 : tl_events_check(events);
	if (error)
		return error;
	event = &events->control_events[slot];
	*event = event_of(events, watch);
	if (watch->controlled) {
		only_the_newest_counts(sched, watch);
	} else {
		watch->controlled = true;
		watch->control_next = events->controls;
		events->controls = watch;
	}
	watch->control = CONTROL_QUEUED;
	events->adding |= op != EPOLL_CTL_DEL;
	sched->own_calls++;
	return TL_CALL(sched, NULL, &watch->control, SYS_epoll_ctl, events->set.fd, op,
		       watch->fd, event);
}

int tl_watch_want(struct tl_sched *sched, struct watch *watch, uint32_t wanted)
{
	uint32_t before = watch->interest;
	int error;

	wanted |= EPOLLERR; /* the kernel's set shows it anyway, and interest is then not 0 */
	if (!(wanted & ~before))
		return 0;
	watch->interest |= wanted;
	watch->unheard = false;
	error = tl_watch_control_queue(sched, watch, before ? EPOLL_CTL_MOD : EPOLL_CTL_ADD);
	if (error)
		watch->interest = before;
	return error;
}

int tl_watch_want_less(struct tl_sched *sched, struct watch *watch)
{
	const struct registration *registration;
	const struct thread *thread;
	uint32_t wanted = 0;

	for (thread = watch->waiters; thread; thread = thread->wait_next)
		wanted |= thread->wait_events;
	for (registration = watch->registrations; registration; registration = registration->next)
		wanted |= registration->thread ? 0 : registration->events;
	watch->interest = wanted ? wanted | EPOLLERR : 0;
	return tl_watch_control_queue(sched, watch, wanted ? EPOLL_CTL_MOD : EPOLL_CTL_DEL);
}

/* ---- Inside another loop ------------------------------------------------------------------- */

int tl_sched_fd(struct tl_sched *sched)
{
	struct events *events = &sched->events;
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.u64 = 0 };
	int error = tl_events_open(sched);
	long fd;

	if (error)
		return error;
	if (events->timer_fd >= 0)
		return events->set.fd;
	fd = tl_descriptor_keep(raw_syscall(SYS_timerfd_create, CLOCK_MONOTONIC,
					    TFD_CLOEXEC | TFD_NONBLOCK, 0, 0, 0, 0));
	if (fd < 0)
		return (int)fd;
	error = tl_events_check(events);
	if (!error)
		error = (int)raw_syscall(SYS_epoll_ctl, (uint64_t)events->set.fd, EPOLL_CTL_ADD,
					 (uint64_t)fd, (uintptr_t)&event, 0, 0);
	if (error) {
		raw_syscall(SYS_close, (uint64_t)fd, 0, 0, 0, 0, 0);
		return error;
	}
	events->timer_fd = (int)fd;
	tl_events_arm(sched);
	return events->set.fd;
}

void tl_events_arm(struct tl_sched *sched)
{
	struct events *events = &sched->events;
	bool work = sched->threads.ready || tl_batch_queued(sched->head.batch);
	uint64_t due_ns = tl_timers_next(events);
	struct itimerspec when = { .it_value = { 0 } };

	if (work)
		due_ns = 1;
	/* One of our threads may have forked: its child leaves its parent's timer alone. */
	if (events->timer_fd < 0 || due_ns == events->armed_ns || !sched->head.batch->requests)
		return;
	/* The number may be that of another file by now; only the timer is a member of the set. */
	if (tl_set_check(&events->set, events->timer_fd))
		return;
	events->armed_ns = due_ns;
	if (due_ns != TIME_NEVER) {
		when.it_value.tv_sec = (time_t)(due_ns / 1000000000u);
		when.it_value.tv_nsec = (long)(due_ns % 1000000000u);
	}
	raw_syscall(SYS_timerfd_settime, (uint64_t)events->timer_fd, TFD_TIMER_ABSTIME,
		    (uintptr_t)&when, 0, 0, 0);
}
