// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * event.c - external events of a scheduler, each of which becomes a fine-grained thread of its own.
 * It owns the registrations and the poll(2) that rides with a flush; when to flush is sched.c's.
 */
#include "sched.h"
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>

#define EVENTS_ROOM_FIRST 8u

static int event_find(const struct tl_sched *sched, int fd)
{
	for (uint32_t i = 0; i < sched->events_n; i++)
		if (sched->polls[i].fd == fd || sched->polls[i].fd == ~fd)
			return (int)i;
	return -ENOENT;
}

static int events_grow(struct tl_sched *sched)
{
	uint32_t room = sched->events_room ? 2 * sched->events_room : EVENTS_ROOM_FIRST;
	struct tl_event *events = tl_heap_resize(sched->events, room, sizeof(*events));
	struct pollfd *polls;

	if (!events)
		return -ENOMEM;
	sched->events = events;
	polls = tl_heap_resize(sched->polls, room, sizeof(*polls));
	if (!polls)
		return -ENOMEM;
	sched->polls = polls;
	sched->events_room = room;
	return 0;
}

int tl_event_add(struct tl_sched *sched, int fd, short events, tl_entry entry, void *arg)
{
	uint32_t i = sched->events_n;

	if (fd < 0)
		return -EBADF;
	if (!entry)
		return -EINVAL;
	if (event_find(sched, fd) >= 0)
		return -EEXIST;
	if (i == sched->events_room) {
		int result = events_grow(sched);

		if (result)
			return result;
	}
	sched->events[i] = (struct tl_event){ .entry = entry, .arg = arg };
	sched->polls[i] = (struct pollfd){ fd, events, 0 };
	sched->events_n++;
	return 0;
}

static void event_drop(struct tl_sched *sched, uint32_t i)
{
	uint32_t last = --sched->events_n;

	sched->events[i] = sched->events[last];
	sched->polls[i] = sched->polls[last];
}

int tl_event_remove(struct tl_sched *sched, int fd)
{
	int i = event_find(sched, fd);

	if (i < 0)
		return i;
	event_drop(sched, (uint32_t)i);
	return 0;
}

void tl_event_rearm(struct tl_sched *sched, const struct tl_thread *thread)
{
	int i = event_find(sched, thread->event_fd);

	/* Not a later registration of the same descriptor: that one has a thread of its own. */
	if (i >= 0 && sched->events[i].thread == thread) {
		sched->events[i].thread = NULL;
		sched->polls[i].fd = thread->event_fd;
	}
}

void tl_events_poll(struct tl_sched *sched, bool may_sleep)
{
	sched->poll_result = 0;
	sched->poll_slot = -1;
	if (!sched->events_n)
		return;
	/* It may sleep: whatever else is queued is made before it, in any order or not. */
	tl_batch_barrier(sched->batch);
	/* A full ring leaves no room: the next flush takes the look along. */
	sched->poll_slot = sched_queue(sched, NULL, &sched->poll_result, SYS_poll,
				       (uint64_t)(uintptr_t)sched->polls, sched->events_n,
				       may_sleep ? (uint64_t)-1 : 0, 0, 0, 0);
}

/* The flush ended early and left the poll in the ring: the array may move before it is made. */
static void poll_disarm(struct tl_sched *sched)
{
	struct tl_batch *batch = sched->batch;
	struct tl_request *request = &batch->requests[(uint32_t)sched->poll_slot];

	if (tl_batch_queued(batch)) {
		request->args[0] = 0;
		request->args[1] = 0;
		request->args[2] = 0;
	}
}

int tl_events_deliver(struct tl_sched *sched)
{
	uint32_t i = 0;

	if (sched->poll_slot < 0)
		return 0;
	poll_disarm(sched);
	/* A poll that cannot be made would be asked for again and again: its caller must know. */
	if (sched->poll_result < 0 && sched->poll_result != -EINTR)
		return (int)sched->poll_result;
	if (sched->poll_result <= 0)
		return 0;
	while (i < sched->events_n) {
		struct tl_event *event = &sched->events[i];
		struct pollfd *poll = &sched->polls[i];
		struct tl_thread *thread;

		if (event->thread || !poll->revents) {
			i++;
			continue;
		}
		if (tl_thread_create(sched, &thread, event->entry, event->arg, 0))
			return -ENOMEM;
		if (poll->revents & POLLNVAL) {
			/* The descriptor is closed: its thread runs once more, then no more. */
			event_drop(sched, i);
			continue;
		}
		thread->event_fd = poll->fd;
		event->thread = thread;
		poll->fd = ~poll->fd;
		i++;
	}
	return 0;
}

void tl_events_free(struct tl_sched *sched)
{
	free(sched->events);
	free(sched->polls);
}
