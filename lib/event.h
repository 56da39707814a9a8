/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * event.h - the external events of a scheduler: their registrations, and the threads that they
 * create. sched.c makes the poll(2) that looks for them.
 *
 * Concurrency: as of the scheduler. One thread of the process uses it at a time; nothing is locked.
 */
#ifndef TRAPLESS_LIB_EVENT_H
#define TRAPLESS_LIB_EVENT_H

#include <poll.h>
#include <trapless.h>

struct event {
	tl_entry entry;
	void *arg;
	struct tl_thread *thread;	/* of the last event until it has run, else NULL */
};

struct events {
	struct event *list;		/* n of them, parallel to polls */
	struct pollfd *polls;		/* fd is complemented while the event's thread exists */
	uint32_t n;
	uint32_t room;
};

/*
 * Registers and removes an event, with the errors of tl_event_add() and tl_event_remove(). *thread
 * is the thread of the removed event that has not run to its end, or NULL.
 */
int tl_events_add(struct events *events, const struct pollfd *poll, tl_entry entry, void *arg);
int tl_events_remove(struct events *events, int fd, struct tl_thread **thread);
/* Creates the threads of the events that a poll(2) has found. Returns 0 or -ENOMEM. */
int tl_events_deliver(struct events *events, struct tl_sched *sched);
/* The event's thread has run: the next poll(2) looks at the descriptor again. */
void tl_events_rearm(struct events *events, const struct tl_thread *thread);
void tl_events_free(struct events *events);

#endif /* TRAPLESS_LIB_EVENT_H */
