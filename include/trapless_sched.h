/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * Fine-grained threads: the tl_sched part of trapless.h, which includes it. Its functions are
 * listed in tl_sched.3. trapless.h says what holds for all functions of the library.
 */
#ifndef TRAPLESS_SCHED_H
#define TRAPLESS_SCHED_H

#include <trapless.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tl_sched;
struct tl_thread;

/* A thread's body. It runs to completion and should not block. Its return ends self. */
typedef void (*tl_entry)(struct tl_thread *self, void *arg);

/* The inline functions below use these fields; a program may read arg and events. */
struct tl_thread {
	struct tl_thread *next;
	struct tl_sched *sched;
	tl_entry entry;
	void *arg;
	uint32_t missing;		/* synchronisations that have not arrived */
	uint32_t unclaimed;		/* missing ones that nothing queued will deliver */
	uint32_t events;		/* what the descriptor showed, in a thread of an event */
	uint32_t continues;		/* tl_then() was called */
};

struct tl_sched_config {
	uint32_t size;			/* sizeof(struct tl_sched_config); it may grow at its end */
	uint32_t flags;			/* TL_PLAIN, TL_MODULE, TL_UNORDERED */
	uint32_t flush_at;		/* flush when this many calls are queued; 0: 32 */
	uint32_t entries;		/* slots of the batch; 0: enough for flush_at */
	uint64_t deadline_ns;		/* flush when a queued call is this old; 0: never */
};

int tl_sched_create(struct tl_sched **sched, const struct tl_sched_config *config);
void tl_sched_destroy(struct tl_sched *sched);
enum tl_backend tl_sched_backend(const struct tl_sched *sched);

/*
 * Creates a thread that becomes ready when `syncs` synchronisations have arrived; with 0 it is
 * ready at once. *thread is valid until the thread has ended; thread may be NULL. Returns 0 or
 * -ENOMEM.
 */
int tl_thread_create(struct tl_sched *sched, struct tl_thread **thread, tl_entry entry, void *arg,
		     unsigned int syncs);
/*
 * Makes the thread that runs its own continuation, and returns it. When the thread returns it does
 * not end, and entry(self, arg) runs when `syncs` synchronisations have arrived, 1 at least. So a
 * chain of calls needs one thread and a few stores a call:
 *
 *	TL_CALL(sched, tl_then(self, received, 1), &length, SYS_read, fd, text, sizeof(text));
 */
TL_INLINE struct tl_thread *tl_then(struct tl_thread *self, tl_entry entry, unsigned int syncs);
/*
 * Delivers one synchronisation. Returns 0, or -EINVAL if all synchronisations have arrived or
 * something queued will deliver them.
 */
int tl_thread_sync(struct tl_thread *thread);
struct tl_sched *tl_thread_sched(const struct tl_thread *self);

/*
 * Queues a split-phase call. Its completion stores the result to *result and synchronises
 * `continuation` once; each of the two may be NULL. The memory that the arguments and result point
 * to must stay valid until then. A full batch is flushed first. Returns 0, -EINVAL if no
 * synchronisation of the continuation is left to deliver, or an error of tl_batch_flush().
 *
 * Calls are made in the order in which they were queued. In a scheduler with TL_UNORDERED only
 * continuations order calls: the calls of one flush are made as in a batch with TL_UNORDERED.
 */
TL_INLINE int tl_call(struct tl_sched *sched, struct tl_thread *continuation, int64_t *result,
			  uint32_t nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
			  uint64_t a4, uint64_t a5);
/*
 * Begins a program of at most n calls: the next n calls have slots of one flush, and the function
 * returns the first slot. If there is no room for them, the queued calls are flushed before.
 * Returns -EINVAL if the scheduler has fewer slots, or an error of tl_batch_flush(). A scheduler
 * with TL_UNORDERED knows no programs.
 *
 *	int o = tl_sched_reserve(sched, 3);
 *	TL_CALL(sched, NULL, &file, SYS_openat, AT_FDCWD, path, O_RDONLY);
 *	TL_CALL(sched, NULL, &length, SYS_read | TL_RESULT(0), o, text, sizeof(text));
 *	TL_CALL(sched, tl_then(self, have_read, 1), NULL, SYS_close | TL_RESULT(0), o);
 */
TL_INLINE int tl_sched_reserve(struct tl_sched *sched, unsigned int n);
/* The part of tl_sched_reserve() that flushes. */
int tl_sched_make_room(struct tl_sched *sched, unsigned int n);
/* Does what tl_batch_jump() does, with a call that is queued in the scheduler. */
int tl_sched_jump(struct tl_sched *sched, unsigned int slot, enum tl_condition condition,
		  unsigned int target);

/*
 * Waits for a descriptor or for time to pass. When fd shows one of `events` (bits of epoll(7)), an
 * error or a hang-up, *result becomes what it shows; after timeout_ns it becomes 0. Then
 * `continuation` is synchronised once. A thread waits for one descriptor at a time. With fd -1 only
 * time counts, and a timeout_ns of -1 is no limit. A time is never too short; it may be a
 * millisecond too long, and from one second on a tenth of a second. An error of epoll_ctl(2)
 * becomes the result.
 *
 * The descriptor is in the kernel's epoll set from the first wait to tl_event_remove(), which has
 * to come before fd is closed. With EPOLLET in `events` a wait is cheaper and ends by what has
 * arrived since the last one ended: make calls until one returns -EAGAIN or less than it was asked
 * for, and only then wait. All waits for a descriptor have EPOLLET, or none.
 *
 * Returns 0; -EINVAL if no synchronisation of the continuation is left to deliver, if it waits
 * already, or if fd has a wait or an event with and without EPOLLET; or -ENOMEM.
 */
int tl_wait(struct tl_sched *sched, struct tl_thread *continuation, int64_t *result, int fd,
	    uint32_t events, int64_t timeout_ns);
/* Ends the wait of a continuation with the result -ECANCELED. Returns 0, or -ENOENT. */
int tl_wait_cancel(struct tl_thread *continuation);

/*
 * Registers an external event. Whenever fd shows one of `events` (bits of epoll(7)), an error or a
 * hang-up, the scheduler creates a thread entry(arg), and creates no other until that thread has
 * ended. self->events is what fd showed. The thread should queue the call that consumes the event.
 * A descriptor may have several registrations. The registration must be removed before fd is
 * closed. Returns 0, -EINVAL (entry is NULL, or EPOLLET is not as in the others of this
 * descriptor), -ENOMEM, or an error of epoll_ctl(2): -EPERM is a file that is always ready.
 */
int tl_event_add(struct tl_sched *sched, int fd, uint32_t events, tl_entry entry, void *arg);
/*
 * Ends all registrations of a descriptor, and its waits with the result -ECANCELED. From its return
 * on no thread of a registration begins or goes on (tl_then()), not even one that was created
 * before, so that `arg` may be freed. A thread of it that calls this function goes on to its
 * return. Threads that it created itself, like continuations, still run. Returns 0, or -ENOENT.
 *
 * The next flush takes the descriptor out of the kernel's epoll set. If another descriptor leads to
 * the same file (dup(2), a child), fd must be open until then: the set shows the file otherwise for
 * as long as it is open, and the scheduler does not sleep while it is ready.
 */
int tl_event_remove(struct tl_sched *sched, int fd);

/*
 * Runs threads until no thread is ready, no call is queued, nothing is waited for and no event is
 * registered, or until tl_sched_stop(). Returns 0, -EDEADLK if one of the scheduler's own threads
 * calls it, or an error of tl_batch_flush() or epoll_wait(2).
 */
int tl_sched_run(struct tl_sched *sched);
/*
 * Does the same, but returns when there is nothing to do but to wait, or after some hundred
 * threads. It sleeps only if there is nothing to do at its beginning, for timeout_ns at most; -1 is
 * no limit. Returns 1 if anything is left, which may be something to wait for, and else as
 * tl_sched_run() does.
 */
int tl_sched_run_once(struct tl_sched *sched, int64_t timeout_ns);
/*
 * Returns a descriptor that becomes readable when tl_sched_run_once(sched, 0) has something to do,
 * or -errno. By it the scheduler runs inside another event loop: that loop calls
 * tl_sched_run_once() when the descriptor is readable, and after it has queued calls or created
 * threads itself. The descriptor belongs to the scheduler.
 */
int tl_sched_fd(struct tl_sched *sched);
/*
 * Ends the current run, or else the next one, after the thread or batch that is executing. A signal
 * handler may call it.
 */
void tl_sched_stop(struct tl_sched *sched);

struct tl_sched_stats {
	uint32_t size;
	uint32_t reserved;
	uint64_t threads_run;		/* a thread that goes on is run again */
	uint64_t calls;			/* calls completed */
	uint64_t crossings;		/* crossings made for them */
	uint64_t flushes_full;		/* flushes because flush_at was reached */
	uint64_t flushes_idle;		/* flushes because no thread was ready */
	uint64_t flushes_deadline;	/* flushes because the oldest call reached deadline_ns */
	uint64_t looks;			/* looks at the events */
};
/* The caller sets stats->size; fields beyond it are left alone. */
int tl_sched_get_stats(const struct tl_sched *sched, struct tl_sched_stats *stats);

/* An argument may be a pointer: TL_CALL(sched, next, &length, SYS_read, fd, text, sizeof(text)). */
#define TL_CALL(sched, continuation, result, ...) \
	TL_CALL_(sched, continuation, result, __VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define TL_CALL_(sched, continuation, result, nr, a0, a1, a2, a3, a4, a5, ...) \
	tl_call(sched, continuation, result, TL_CAST(uint32_t, nr), TL_ARG(a0), TL_ARG(a1), \
		TL_ARG(a2), TL_ARG(a3), TL_ARG(a4), TL_ARG(a5))

/* ---- Inline parts ------------------------------------------------------------------------ */

/* What becomes of the call in a slot when it is complete. */
struct tl_completion {
	struct tl_thread *continuation;
	int64_t *result;
};

/* A scheduler begins with these fields, for the inline functions. */
struct tl_sched_head {
	struct tl_batch *batch;
	struct tl_completion *completions;	/* one for each slot */
	uint32_t awaited;			/* queued calls that have a continuation */
	uint32_t reserved;
};
#define TL_SCHED_HEAD(sched) TL_CAST(struct tl_sched_head *, TL_CAST(void *, sched))

TL_INLINE int tl_sched_reserve(struct tl_sched *sched, unsigned int n)
{
	const struct tl_batch *batch = TL_SCHED_HEAD(sched)->batch;

	if (n > TL_CAST(size_t, batch->end - batch->next) || !n)
		return tl_sched_make_room(sched, n);
	return TL_CAST(int, batch->next - batch->requests);
}

TL_INLINE int tl_call(struct tl_sched *sched, struct tl_thread *continuation, int64_t *result,
			  uint32_t nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
			  uint64_t a4, uint64_t a5)
{
	struct tl_sched_head *head = TL_SCHED_HEAD(sched);
	struct tl_batch *batch = head->batch;
	struct tl_completion *completion;

	if (continuation && !continuation->unclaimed)
		return -22; /* -EINVAL */
	if (batch->next == batch->end) {
		int error = tl_sched_make_room(sched, 1);

		if (error < 0)
			return error;
	}
	completion = &head->completions[batch->next - batch->requests];
	tl_batch_add(batch, nr, a0, a1, a2, a3, a4, a5);
	completion->continuation = continuation;
	completion->result = result;
	if (continuation) {
		continuation->unclaimed--;
		head->awaited++;
	}
	return 0;
}

TL_INLINE struct tl_thread *tl_then(struct tl_thread *self, tl_entry entry, unsigned int syncs)
{
	self->entry = entry;
	self->missing = syncs;
	self->unclaimed = syncs;
	self->continues = 1;
	return self;
}

#ifdef __cplusplus
}
#endif

#endif /* TRAPLESS_SCHED_H */
