// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * event.c - external events of a scheduler. It owns their registrations and makes a fine-grained
 * thread of each event. When and how the scheduler looks for events is the business of sched.c.
 */
#include "event.h"
#include "internal.h"
#include "thread.h"

#include <errno.h>
#include <stdlib.h>

#define EVENTS_ROOM_FIRST 8u

static int event_find(const struct events *events, int fd)
{
	for (uint32_t i = 0; i < events->n; i++)
		if (events->polls[i].fd == fd || events->polls[i].fd == ~fd)
			return (int)i;
	return -ENOENT;
}

static int events_grow(struct events *events)
{
	uint32_t room = events->room ? 2 * events->room : EVENTS_ROOM_FIRST;
	struct event *list = tl_heap_resize(events->list, room, sizeof(*list));
	struct pollfd *polls;

	if (!list)
		return -ENOMEM;
	events->list = list;
	polls = tl_heap_resize(events->polls, room, sizeof(*polls));
	if (!polls)
		return -ENOMEM;
	events->polls = polls;
	events->room = room;
	return 0;
}

int tl_events_add(struct events *events, const struct pollfd *poll, tl_entry entry, void *arg)
{
	if (poll->fd < 0)
		return -EBADF;
	if (!entry)
		return -EINVAL;
	if (event_find(events, poll->fd) >= 0)
		return -EEXIST;
	if (events->n == events->room) {
		int result = events_grow(events);

		if (result)
			return result;
	}
	events->list[events->n] = (struct event){ .entry = entry, .arg = arg };
	events->polls[events->n++] = *poll;
	return 0;
}

static void event_drop(struct events *events, uint32_t i)
{
	uint32_t last = --events->n;

	events->list[i] = events->list[last];
	events->polls[i] = events->polls[last];
}

int tl_events_remove(struct events *events, int fd, struct tl_thread **thread)
{
	int i = event_find(events, fd);

	if (i < 0)
		return i;
	*thread = events->list[i].thread;
	event_drop(events, (uint32_t)i);
	return 0;
}

/*
 * The thread of a closed descriptor. Its registration lasts until here, so that a removal still
 * finds the thread.
 */
static void run_last(struct tl_thread *self, void *arg)
{
	struct events *events = arg;
	uint32_t i = (uint32_t)event_find(events, self->event_fd);
	struct event event = events->list[i];

	event_drop(events, i);
	self->event_fd = -1;
	event.entry(self, event.arg);
}

void tl_events_rearm(struct events *events, const struct tl_thread *thread)
{
	int i = event_find(events, thread->event_fd);

	/* A later registration of the same descriptor has a thread of its own. */
	if (i >= 0 && events->list[i].thread == thread) {
		events->list[i].thread = NULL;
		events->polls[i].fd = thread->event_fd;
	}
}

int tl_events_deliver(struct events *events, struct tl_sched *sched)
{
	for (uint32_t i = 0; i < events->n; i++) {
		struct event *event = &events->list[i];
		struct pollfd *poll = &events->polls[i];
		struct tl_thread *thread;
		int result;

		if (event->thread || !poll->revents)
			continue;
		if (poll->revents & POLLNVAL)
			result = tl_thread_create(sched, &thread, run_last, events, 0);
		else
			result = tl_thread_create(sched, &thread, event->entry, event->arg, 0);
		if (result)
			return result;
		thread->event_fd = poll->fd;
		event->thread = thread;
		poll->fd = ~poll->fd;
	}
	return 0;
}

void tl_events_free(struct events *events)
{
	free(events->list);
	free(events->polls);
}
