// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * event.c - what a scheduler waits for beside its calls. It owns the kernel's epoll set, what is
 * known of each descriptor in it, the external events, which create threads, and the waits of
 * threads for descriptors. Times are in timer.c. When the scheduler looks at the set is the
 * business of sched.c.
 *
 * A descriptor is put into the set by a queued epoll_ctl(2) when something waits for it first, and
 * stays there. Without EPOLLET the kernel shows it at each look for as long as it is ready; if
 * nobody wants that twice in a row, the set asks for less until somebody wants it again.
 */
#include "internal.h"
#include "enter.h"
#include "sched.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define CHUNK_WATCHES 64u
#define FAILURE (EPOLLERR | EPOLLHUP)	/* what the kernel always shows */
#define LASTING (FAILURE | EPOLLRDHUP)	/* what stays once it was shown */
#define EVENTS_KNOWN (0x3fffu | EPOLLET)
#define TIMER_DATA UINT64_MAX
#define CONTROL_QUEUED INT64_MIN

void tl_events_init(struct events *events)
{
	events->epoll_fd = -1;
	events->timer_fd = -1;
	events->armed_ns = TIME_NEVER;
	events->looked = LOOK_NONE;
}

static int open_set(struct tl_sched *sched)
{
	struct events *events = &sched->events;
	struct tl_batch *batch = sched->head.batch;
	size_t slots = (size_t)(batch->end - batch->requests);
	long fd;

	if (!batch->requests)
		return -EPERM;
	if (events->epoll_fd >= 0)
		return 0;
	if (!events->control_events)
		events->control_events =
			tl_heap_resize(NULL, slots, sizeof(*events->control_events));
	if (!events->control_events)
		return -ENOMEM;
	fd = raw_syscall(SYS_epoll_create1, EPOLL_CLOEXEC, 0, 0, 0, 0, 0);
	if (fd < 0)
		return (int)fd;
	events->epoll_fd = (int)fd;
	return 0;
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
	if (events->timer_fd >= 0)
		raw_syscall(SYS_close, (uint64_t)events->timer_fd, 0, 0, 0, 0, 0);
	if (events->epoll_fd >= 0)
		raw_syscall(SYS_close, (uint64_t)events->epoll_fd, 0, 0, 0, 0, 0);
}

/* ---- Descriptors --------------------------------------------------------------------------- */

static struct watch *watch_find(const struct events *events, uint32_t fd)
{
	uint32_t chunk = fd / CHUNK_WATCHES;

	if (chunk >= events->chunks_n || !events->chunks[chunk])
		return NULL;
	return &events->chunks[chunk][fd % CHUNK_WATCHES];
}

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

static struct watch *watch_get(struct events *events, int fd)
{
	struct watch *watch = watch_find(events, (uint32_t)fd);

	return watch ? watch : watch_make(events, (uint32_t)fd);
}

static bool watch_is_used(const struct watch *watch)
{
	return watch->registrations || watch->waiters || watch->interest;
}

static struct epoll_event event_of(const struct watch *watch)
{
	return (struct epoll_event){
		.events = watch->interest,
		.data.u64 = (uint64_t)watch->generation << 32 | (uint32_t)watch->fd,
	};
}

/* Makes an epoll_ctl(2) at once. */
static int control(const struct events *events, const struct watch *watch, int op)
{
	struct epoll_event event = event_of(watch);

	return (int)raw_syscall(SYS_epoll_ctl, (uint64_t)events->epoll_fd, (uint64_t)op,
				(uint64_t)watch->fd, (uintptr_t)&event, 0, 0);
}

/* Queues an epoll_ctl(2). Its result is looked at when it is complete. */
static int control_queue(struct tl_sched *sched, struct watch *watch, int op)
{
	struct events *events = &sched->events;
	int slot = tl_sched_reserve(sched, 1);
	struct epoll_event *event;

	if (slot < 0)
		return slot;
	event = &events->control_events[slot];
	*event = event_of(watch);
	if (!watch->controlled) {
		watch->controlled = true;
		watch->control_next = events->controls;
		events->controls = watch;
	}
	watch->control = CONTROL_QUEUED;
	events->adding |= op != EPOLL_CTL_DEL;
	sched->own_calls++;
	return TL_CALL(sched, NULL, &watch->control, SYS_epoll_ctl, events->epoll_fd, op,
		       watch->fd, event);
}

/* Makes the set show at least `wanted`. */
static inline int watch_want(struct tl_sched *sched, struct watch *watch, uint32_t wanted)
{
	uint32_t before = watch->interest;
	int error;

	wanted |= EPOLLERR; /* the kernel's set shows it anyway, and interest is then not 0 */
	if (!(wanted & ~before))
		return 0;
	watch->interest |= wanted;
	watch->unheard = false;
	error = control_queue(sched, watch, before ? EPOLL_CTL_MOD : EPOLL_CTL_ADD);
	if (error)
		watch->interest = before;
	return error;
}

/* Nobody has wanted what the descriptor shows at each look: the set asks for less. */
static int watch_want_less(struct tl_sched *sched, struct watch *watch)
{
	const struct registration *registration;
	const struct thread *thread;
	uint32_t wanted = 0;

	for (thread = watch->waiters; thread; thread = thread->wait_next)
		wanted |= thread->wait_events;
	for (registration = watch->registrations; registration; registration = registration->next)
		wanted |= registration->thread ? 0 : registration->events;
	watch->interest = wanted ? wanted | EPOLLERR : 0;
	return control_queue(sched, watch, wanted ? EPOLL_CTL_MOD : EPOLL_CTL_DEL);
}

/* ---- Waits --------------------------------------------------------------------------------- */

static void wait_end(struct tl_sched *sched, struct thread *thread, int64_t result)
{
	struct events *events = &sched->events;

	thread->waits = false;
	thread->wait_due_ns = TIME_NEVER;
	events->waits_n--;
	if (thread->wait_fd >= 0) {
		struct watch *watch = watch_find(events, (uint32_t)thread->wait_fd);
		struct thread **link = &watch->waiters;

		while (*link != thread)
			link = &(*link)->wait_next;
		*link = thread->wait_next;
		events->fd_waits_n--;
	}
	if (thread->wait_result)
		*thread->wait_result = result;
	thread_deliver(&sched->threads, thread);
}

/* With EPOLLET: what the descriptor has shown and a wait for `events` takes. */
static uint32_t take_ready(struct watch *watch, uint32_t events)
{
	uint32_t taken = watch->ready & (events | FAILURE);

	watch->ready &= ~taken | LASTING;
	return taken;
}

int tl_wait(struct tl_sched *sched, struct tl_thread *continuation, int64_t *result, int fd,
	    uint32_t events, int64_t timeout_ns)
{
	struct events *all = &sched->events;
	struct thread *thread = thread_of(continuation);
	struct watch *watch = NULL;
	uint32_t taken;
	int error;

	if (!continuation || !continuation->unclaimed || thread->waits || events & ~EVENTS_KNOWN)
		return -EINVAL;
	error = open_set(sched);
	if (error)
		return error;
	if (fd >= 0) {
		watch = watch_get(all, fd);
		if (!watch)
			return -ENOMEM;
		if (watch->interest && (watch->interest ^ events) & EPOLLET)
			return -EINVAL;
	}
	if (timeout_ns >= 0) {
		error = tl_timer_set(all, thread, timeout_ns);
		if (error)
			return error;
	}
	if (watch) {
		error = watch_want(sched, watch, events);
		if (error)
			goto no_timer;
		taken = take_ready(watch, events);
		if (taken) {
			thread->wait_due_ns = TIME_NEVER;
			continuation->unclaimed--;
			if (result)
				*result = taken;
			thread_deliver(&sched->threads, thread);
			return 0;
		}
		thread->wait_next = watch->waiters;
		watch->waiters = thread;
		all->fd_waits_n++;
	}
	continuation->unclaimed--;
	thread->waits = true;
	thread->wait_result = result;
	thread->wait_events = events;
	thread->wait_fd = watch ? fd : -1;
	all->waits_n++;
	return 0;

no_timer:
	thread->wait_due_ns = TIME_NEVER;
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
	struct registration *registration;
	struct watch *watch;
	uint32_t before;
	int error;

	if (fd < 0)
		return -EBADF;
	if (!entry || events & ~EVENTS_KNOWN)
		return -EINVAL;
	error = open_set(sched);
	if (error)
		return error;
	watch = watch_get(all, fd);
	registration = all->unused;
	if (registration)
		all->unused = registration->next;
	else
		registration = tl_heap_resize(NULL, 1, sizeof(*registration));
	if (!watch || !registration) {
		free(registration);
		return -ENOMEM;
	}
	/* What is queued about this descriptor comes first. */
	error = watch->controlled ? tl_sched_flush(sched) : 0;
	before = watch->interest;
	if (!error && before && (before ^ events) & EPOLLET)
		error = -EINVAL;
	if (error)
		goto put;
	watch->interest |= events | EPOLLERR;
	/* Again, even if the set asks for these events already: EPOLLET shows them once a call. */
	error = control(all, watch, before ? EPOLL_CTL_MOD : EPOLL_CTL_ADD);
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

/* What a cancelled thread runs: it was counted just before, and is no thread that has run. */
static void cancelled(struct tl_thread *self, void *arg)
{
	(void)arg;
	self->sched->stats.threads_run--;
}

/*
 * The event's thread stays in the queue with nothing to do, for the queue has no way back from a
 * thread to the one before it. If it is the caller it goes on, as a thread of no event.
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

	if (!watch || !watch_is_used(watch))
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
	return interest ? control_queue(sched, watch, EPOLL_CTL_DEL) : 0;
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
	return watch_want(sched, registration->watch, registration->events);
}

/* ---- What a look has found ----------------------------------------------------------------- */

/* Gives what a descriptor shows to all who want it. */
static int watch_show(struct tl_sched *sched, struct watch *watch, uint32_t shown)
{
	bool edge = watch->interest & EPOLLET, heard = edge;
	struct thread *thread, *next;
	uint32_t taken = 0;
	int error = 0;

	for (thread = watch->waiters; thread; thread = next) {
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
		error = watch_want_less(sched, watch);
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
		struct watch *watch;

		if (data == TIMER_DATA) {
			events->armed_ns = TIME_NEVER;
			continue;
		}
		watch = watch_find(events, (uint32_t)data);
		if (watch && watch->generation == data >> 32 && watch->interest)
			error = watch_show(sched, watch, events->found[i].events);
	}
	return error;
}

/* The program has closed a descriptor behind our back: the set is made what it should be. */
static int control_mend(const struct events *events, const struct watch *watch)
{
	if (watch->control == -EEXIST)
		return control(events, watch, EPOLL_CTL_MOD);
	if (watch->control == -ENOENT)
		return control(events, watch, EPOLL_CTL_ADD);
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

/* ---- Inside another loop ------------------------------------------------------------------- */

int tl_sched_fd(struct tl_sched *sched)
{
	struct events *events = &sched->events;
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.u64 = TIMER_DATA };
	int error = open_set(sched);
	long fd;

	if (error)
		return error;
	if (events->timer_fd >= 0)
		return events->epoll_fd;
	fd = raw_syscall(SYS_timerfd_create, CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK, 0, 0, 0,
			 0);
	if (fd < 0)
		return (int)fd;
	error = (int)raw_syscall(SYS_epoll_ctl, (uint64_t)events->epoll_fd, EPOLL_CTL_ADD,
				 (uint64_t)fd, (uintptr_t)&event, 0, 0);
	if (error) {
		raw_syscall(SYS_close, (uint64_t)fd, 0, 0, 0, 0, 0);
		return error;
	}
	events->timer_fd = (int)fd;
	tl_events_arm(sched);
	return events->epoll_fd;
}

void tl_events_arm(struct tl_sched *sched)
{
	struct events *events = &sched->events;
	bool work = sched->threads.ready || tl_batch_queued(sched->head.batch);
	uint64_t due_ns = tl_timers_next(events);
	struct itimerspec when = { .it_value = { 0 } };

	/* When timer_fd expires, the clock of ticks must have come to this time, too. */
	due_ns = work ? 1 : due_ns + (due_ns != TIME_NEVER ? events->tick_ns : 0);
	if (events->timer_fd < 0 || due_ns == events->armed_ns)
		return;
	events->armed_ns = due_ns;
	if (due_ns != TIME_NEVER) {
		when.it_value.tv_sec = (time_t)(due_ns / 1000000000u);
		when.it_value.tv_nsec = (long)(due_ns % 1000000000u);
	}
	raw_syscall(SYS_timerfd_settime, (uint64_t)events->timer_fd, TFD_TIMER_ABSTIME,
		    (uintptr_t)&when, 0, 0, 0);
}
