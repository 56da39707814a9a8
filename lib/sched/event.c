// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The events and waits of a scheduler. It owns the external events, which create threads, and the
 * waits of threads, and gives both the results of a look. The set of watched descriptors is in
 * watch.c, times are in timer.c, and when the scheduler looks is the business of sched.c.
 */
#include "state.h"

#include <errno.h>
#include <stdlib.h>

#define FAILURE (EPOLLERR | EPOLLHUP)	/* what the kernel always shows */
#define LASTING (FAILURE | EPOLLRDHUP)	/* what stays once it was shown */
#define EVENTS_KNOWN (0x3fffu | EPOLLET)

/* ---- Waits --------------------------------------------------------------------------------- */

static inline void wait_end(struct tl_sched *sched, struct thread *thread, int64_t result)
{
	struct watch *watch = thread->watch;

	if (watch) {
		struct thread **link = &watch->waiters;

		while (*link != thread)
			link = &(*link)->wait_next;
		*link = thread->wait_next;
	}
	thread->waits = false;
	thread->wait_due_ns = TIME_NEVER;
	sched->events.waits_n--;
	if (thread->wait_result)
		*thread->wait_result = result;
	thread_deliver(&sched->threads, thread);
}

/* Makes the set show what the thread waits for. It may have shown that already. */
static int wait_begin(struct tl_sched *sched, struct thread *thread, struct watch *watch)
{
	uint32_t events = thread->wait_events, taken;
	int error;

	if (watch->interest && (watch->interest ^ events) & EPOLLET)
		return -EINVAL;
	error = tl_watch_want(sched, watch, events);
	/* If the batch was full, a flush has perhaps ended the wait. */
	if (error || !thread->waits)
		return error;
	taken = watch->ready & (events | FAILURE);
	watch->ready &= ~taken | LASTING;
	if (taken)
		wait_end(sched, thread, taken);
	return 0;
}

int tl_wait(struct tl_sched *sched, struct tl_thread *continuation, int64_t *result, int fd,
	    uint32_t events, int64_t timeout_ns)
{
	struct events *all = &sched->events;
	struct thread *thread = thread_of(continuation);
	struct watch *watch = NULL;
	int error;

	if (!continuation || !continuation->unclaimed || thread->waits || events & ~EVENTS_KNOWN)
		return -EINVAL;
	if (all->set.fd < 0 || !sched->head.batch->requests) {
		error = tl_events_open(sched);
		if (error)
			return error;
	}
	if (fd >= 0) {
		watch = watch_find(all, (uint32_t)fd);
		if (!watch)
			watch = tl_watch_get(all, fd);
		if (!watch)
			return -ENOMEM;
		thread->wait_next = watch->waiters;
		watch->waiters = thread;
	}
	continuation->unclaimed--;
	thread->waits = true;
	thread->watch = watch;
	thread->wait_result = result;
	thread->wait_events = events;
	all->waits_n++;
	error = 0;
	if (timeout_ns >= 0)
		error = tl_timer_set(all, thread, timeout_ns);
	/* In the usual case the set asks for it already, and has shown nothing since. */
	if (!error && watch && (watch->interest != (events | EPOLLERR) || watch->ready))
		error = wait_begin(sched, thread, watch);
	if (!error || !thread->waits)
		return 0;
	continuation->missing++;
	thread->wait_result = NULL;
	wait_end(sched, thread, error);
	continuation->unclaimed++;
	return error;
}

int tl_wait_cancel(struct tl_thread *continuation)
{
	struct thread *thread = thread_of(continuation);

	if (!thread->waits)
		return -ENOENT;
	wait_end(continuation->sched, thread, -ECANCELED);
	return 0;
}

void tl_events_expire(struct tl_sched *sched)
{
	struct thread *thread;

	while ((thread = tl_timer_expired(&sched->events)))
		wait_end(sched, thread, 0);
}

/* ---- Events that create threads ------------------------------------------------------------ */

int tl_event_add(struct tl_sched *sched, int fd, uint32_t events, tl_entry entry, void *arg)
{
	struct events *all = &sched->events;
	const struct tl_batch *batch = sched->head.batch;
	unsigned int slots = (unsigned int)(batch->end - batch->requests);
	struct registration *registration;
	struct watch *watch;
	uint32_t before;
	int error;

	if (fd < 0)
		return -EBADF;
	if (!entry || events & ~EVENTS_KNOWN)
		return -EINVAL;
	error = tl_events_open(sched);
	if (error)
		return error;
	watch = tl_watch_get(all, fd);
	registration = all->unused;
	if (registration)
		all->unused = registration->next;
	else
		registration = tl_heap_resize(NULL, 1, sizeof(*registration));
	if (!watch || !registration) {
		free(registration);
		return -ENOMEM;
	}
	/* A queued epoll_ctl(2) of this descriptor comes first, even if the run is to stop. */
	error = watch->controlled ? tl_sched_make_room(sched, slots) : 0;
	before = watch->interest;
	if (!error && before && (before ^ events) & EPOLLET)
		error = -EINVAL;
	if (error)
		goto put;
	watch->interest |= events | EPOLLERR;
	/*
	 * Each such call makes EPOLLET show the events once more, so it is made even if the set has
	 * them.
	 */
	error = tl_watch_control(all, watch, before ? EPOLL_CTL_MOD : EPOLL_CTL_ADD);
	if (error) {
		watch->interest = before;
		goto put;
	}
	*registration = (struct registration){
		.next = watch->registrations,
		.watch = watch,
		.entry = entry,
		.arg = arg,
		.events = events,
	};
	watch->registrations = registration;
	all->registrations_n++;
	return 0;

put:
	registration->next = all->unused;
	all->unused = registration;
	return error;
}

/* The body of a cancelled thread. It does not count as a thread that has run. */
static void cancelled(struct tl_thread *self, void *arg)
{
	(void)arg;
	self->sched->stats.threads_run--;
}

/*
 * The event's thread stays in the queue with nothing to do, because the queue has no link from a
 * thread to the one before it. If that thread is the caller, it continues, and belongs to no event
 * any more.
 */
static void thread_cancel(struct tl_sched *sched, struct thread *thread)
{
	thread->event = NULL;
	if (thread == sched->current)
		return;
	thread->head.entry = cancelled;
	if (thread->waits)
		wait_end(sched, thread, -ECANCELED);
}

int tl_event_remove(struct tl_sched *sched, int fd)
{
	struct events *events = &sched->events;
	struct registration *registration;
	struct watch *watch = fd < 0 ? NULL : watch_find(events, (uint32_t)fd);
	uint32_t interest;

	if (!watch || !(watch->registrations || watch->waiters || watch->interest))
		return -ENOENT;
	while ((registration = watch->registrations)) {
		watch->registrations = registration->next;
		if (registration->thread)
			thread_cancel(sched, registration->thread);
		registration->next = events->unused;
		events->unused = registration;
		events->registrations_n--;
	}
	while (watch->waiters)
		wait_end(sched, watch->waiters, -ECANCELED);
	interest = watch->interest;
	watch->interest = 0;
	watch->ready = 0;
	watch->generation++;
	return interest ? tl_watch_control_queue(sched, watch, EPOLL_CTL_DEL) : 0;
}

static int event_begin(struct tl_sched *sched, struct registration *registration, uint32_t shown)
{
	struct tl_thread *thread;
	int error = tl_thread_create(sched, &thread, registration->entry, registration->arg, 0);

	if (error)
		return error;
	thread->events = shown;
	thread_of(thread)->event = registration;
	registration->thread = thread_of(thread);
	registration->pending = 0;
	return 0;
}

int tl_events_thread_ended(struct tl_sched *sched, struct thread *thread)
{
	struct registration *registration = thread->event;
	uint32_t events;

	if (thread->timer)
		tl_timer_drop(&sched->events, thread);
	if (!registration)
		return 0;
	thread->event = NULL;
	registration->thread = NULL;
	events = registration->pending & (registration->events | FAILURE);
	if (events)
		return event_begin(sched, registration, events);
	return tl_watch_want(sched, registration->watch, registration->events);
}

/* ---- What a look has found ----------------------------------------------------------------- */

/* Gives what a descriptor shows to all waits and registrations that want it. */
static inline int watch_show(struct tl_sched *sched, struct watch *watch, uint32_t shown)
{
	bool edge = watch->interest & EPOLLET, heard = edge;
	struct thread *thread = watch->waiters, *next;
	uint32_t taken = 0;
	int error = 0;

	/* In the usual case one thread waits, and for this. */
	if (thread && !thread->wait_next && !watch->registrations &&
	    !(shown & ~(thread->wait_events & ~LASTING))) {
		watch->unheard = false;
		wait_end(sched, thread, shown);
		return 0;
	}
	for (; thread; thread = next) {
		uint32_t wanted = shown & (thread->wait_events | FAILURE);

		next = thread->wait_next;
		if (!wanted)
			continue;
		taken |= wanted;
		wait_end(sched, thread, wanted);
	}
	heard |= taken != 0;
	for (struct registration *registration = watch->registrations; registration && !error;
	     registration = registration->next) {
		uint32_t wanted = shown & (registration->events | FAILURE);

		if (!wanted)
			continue;
		taken |= wanted;
		if (registration->thread) {
			registration->pending |= edge ? wanted : 0;
			continue;
		}
		heard = true;
		error = event_begin(sched, registration, wanted);
	}
	if (edge)
		watch->ready |= (shown & ~taken) | (shown & LASTING);
	if (!heard && watch->unheard && !error)
		error = tl_watch_want_less(sched, watch);
	watch->unheard = !heard;
	return error;
}

int tl_events_looked(struct tl_sched *sched)
{
	struct events *events = &sched->events;
	int64_t n = events->looked;
	int error = 0;

	events->looked = LOOK_NONE;
	/* The caller must know of a look that fails: the scheduler would repeat it for ever. */
	if (n < 0 && n != -EINTR)
		return (int)n;
	for (int64_t i = 0; i < n && !error; i++) {
		uint64_t data = events->found[i].data.u64;
		struct watch *watch = data ? tl_watch_of(events, data) : NULL;

		if (!data)
			events->armed_ns = TIME_NEVER;
		else if (watch && watch->interest)
			error = watch_show(sched, watch, events->found[i].events);
	}
	return error;
}

/* The program has closed a descriptor behind our back: the set is made what it should be. */
static int control_mend(const struct events *events, const struct watch *watch)
{
	if (watch->control == -EEXIST)
		return tl_watch_control(events, watch, EPOLL_CTL_MOD);
	if (watch->control == -ENOENT)
		return tl_watch_control(events, watch, EPOLL_CTL_ADD);
	return (int)watch->control;
}

void tl_events_controlled(struct tl_sched *sched)
{
	struct events *events = &sched->events;
	struct watch *watch, **link = &events->controls;

	events->adding = false;
	while ((watch = *link)) {
		int error;

		if (watch->control == CONTROL_QUEUED) {
			/* A signal handler has stopped the flush. */
			events->adding |= watch->interest != 0;
			link = &watch->control_next;
			continue;
		}
		*link = watch->control_next;
		watch->controlled = false;
		error = watch->interest ? control_mend(events, watch) : 0;
		if (!error)
			continue;
		watch->interest = 0;
		while (watch->waiters)
			wait_end(sched, watch->waiters, error);
	}
}
