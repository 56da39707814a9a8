/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * trapless.h - the C interface of libtrapless.
 *
 * Three ways to make system calls without a trap for each:
 *   tl_batch_*   wrapped calls: queue N, cross once (wrapped-system-call, Fig. 1, 4)
 *   tl_sched_*   fine-grained threads that issue wrapped calls and name continuations (section 2.1)
 *   tl_psc_*     parallel calls served by worker threads (parallel-system-call, section 2)
 * and one to make them as ever without the trap:
 *   switch_*     this process or another in supervisor mode (running-mode-switch, Table 1)
 *
 * Every function that can fail returns -errno and leaves errno alone. Without the module the same
 * programs run with the same results: batches by plain calls, workers by ordinary threads. The
 * backend is chosen when an object is created (environment TRAPLESS_BACKEND=auto|module|plain)
 * and reported by tl_*_backend().
 *
 * Concurrency: one object belongs to one thread at a time, except where a function says otherwise,
 * and of its functions only tl_sched_stop() is for signal handlers. An object belongs to the
 * process that created it: in a child its functions answer -EPERM, or -EAGAIN where they would
 * queue, and only destroying it has an effect. The manual pages (tl_batch.3 and its neighbours,
 * trapless.7) have every error.
 */
#ifndef TRAPLESS_H
#define TRAPLESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <linux/trapless.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tl_backend {
	TL_BACKEND_PLAIN = 0,	/* plain system calls, ordinary threads */
	TL_BACKEND_MODULE = 1,	/* /dev/trapless */
};

/* Flags of the create functions; 0 means: the module where it is loaded, else plain calls. */
#define TL_PLAIN   (1u << 0)	/* never use the module */
#define TL_MODULE  (1u << 1)	/* fail with -ENODEV or -ENOENT where the module is absent */
#define TL_UNORDERED (1u << 2)	/* batches and schedulers: calls may be made in any order */

#define TL_UNORDERED_ENTRIES_MAX (TL_ENTRIES_MAX / 2)	/* slots of a batch with TL_UNORDERED */

/* ---- Wrapped calls ----------------------------------------------------------------------- */

/*
 * The fields are the inline functions' business; read them through those. Pointers and not indices,
 * so that queueing a call is its stores and little more.
 */
struct tl_batch {
	struct tl_request *requests;	/* slot 0; all four are NULL in the child of a fork */
	struct tl_request *first;	/* oldest that waits for a flush */
	struct tl_request *next;	/* next to fill in */
	struct tl_request *end;		/* behind the last slot */
};

/* entries: power of two, 1..TL_ENTRIES_MAX or, with TL_UNORDERED, TL_UNORDERED_ENTRIES_MAX. */
int tl_batch_create(struct tl_batch **batch, unsigned int entries, unsigned int flags);
void tl_batch_destroy(struct tl_batch *batch);
enum tl_backend tl_batch_backend(const struct tl_batch *batch);

/*
 * Queue one call. Returns its slot: 0 for the first after a complete flush, then 1, ... entries-1;
 * then -EAGAIN until a flush has completed all (and always in the child of a fork: a batch belongs
 * to the process that created it).
 */
static inline int tl_batch_add(struct tl_batch *batch, uint32_t nr, uint64_t a0, uint64_t a1,
			       uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5);

/*
 * Execute all queued calls in order, by one crossing unless signals interrupt it. Returns the
 * number completed; fewer than queued only when a signal handler has run (call again for the rest).
 * A call that the handler interrupted is then either complete, with result -EINTR, or still queued.
 * A traced thread's calls are made one by one, so that the tracer sees them. -EPERM in a child.
 *
 * With TL_UNORDERED the calls are made in an order of the library's choice: those with the same
 * number and first argument side by side, in the order in which they were queued; any two others
 * may change places, unless a barrier stands between them. What is complete after a flush that came
 * back early is then not the oldest: ask tl_batch_done().
 */
int tl_batch_flush(struct tl_batch *batch);

/*
 * With TL_UNORDERED: all calls queued so far are complete before any that is queued later begins.
 * Costs no crossing. Without it nothing is left to do. Returns 0, or -EPERM in a child.
 */
int tl_batch_barrier(struct tl_batch *batch);

/* Calls that wait for a flush. */
static inline uint32_t tl_batch_queued(const struct tl_batch *batch);

/*
 * Result of a slot that tl_batch_add() returned, valid from the flush that completed it until the
 * slot is used again.
 */
static inline int64_t tl_batch_result(const struct tl_batch *batch, unsigned int slot);

/* Whether the slot's call is complete and its result therefore valid. */
static inline bool tl_batch_done(const struct tl_batch *batch, unsigned int slot);

/*
 * Kernel-side counts; with plain calls the library's own counts in the same form, a crossing for
 * each call. The caller sets stats->size; fields beyond it are left alone.
 */
int tl_batch_stats(const struct tl_batch *batch, struct tl_stats *stats);

/* ---- Fine-grained threads ---------------------------------------------------------------- */

struct tl_sched;
struct tl_thread;

/* A thread's body: runs to completion and should not block. self is freed when it returns. */
typedef void (*tl_entry)(struct tl_thread *self, void *arg);

struct tl_sched_config {
	uint32_t size;			/* sizeof(struct tl_sched_config); it may grow at its end */
	uint32_t flags;			/* TL_PLAIN, TL_MODULE, TL_UNORDERED */
	uint32_t flush_at;		/* flush when this many calls are queued; 0: 32 */
	uint32_t entries;		/* ring size; 0: enough for flush_at */
	uint64_t deadline_ns;		/* flush when the oldest queued call is this old; 0: none */
};

int tl_sched_create(struct tl_sched **sched, const struct tl_sched_config *config);
void tl_sched_destroy(struct tl_sched *sched);
enum tl_backend tl_sched_backend(const struct tl_sched *sched);

/*
 * A thread that becomes ready when `syncs` synchronisations have arrived (0: ready now). *thread is
 * valid until it has run; thread may be NULL. Returns 0 or -ENOMEM.
 */
int tl_thread_create(struct tl_sched *sched, struct tl_thread **thread, tl_entry entry, void *arg,
		     unsigned int syncs);
/* Deliver one synchronisation. -EINVAL: all have arrived, or queued calls will deliver them. */
int tl_thread_sync(struct tl_thread *thread);
struct tl_sched *tl_thread_sched(const struct tl_thread *self);

/*
 * Split phase: queue a call whose result is stored to *result (may be NULL) and whose completion
 * synchronises `continuation` once (may be NULL: fire and forget). The memory that args and result
 * point to stays valid until then. A full ring is flushed first. Returns 0, -EINVAL if no
 * synchronisation of the continuation is left to deliver, or what tl_batch_flush() returns.
 *
 * Calls are made in the order in which they were queued. In a scheduler with TL_UNORDERED only
 * continuations order them: those that wait for one flush are made as in such a batch.
 */
int tl_call(struct tl_sched *sched, struct tl_thread *continuation, int64_t *result, uint32_t nr,
	    uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5);

/*
 * External events as threads of their own: whenever fd shows one of `events` (poll bits), a new
 * thread entry(arg) is created, and no other until that one has run. It should queue the call that
 * consumes the event. One registration a descriptor; a closed one is dropped.
 */
int tl_event_add(struct tl_sched *sched, int fd, short events, tl_entry entry, void *arg);
int tl_event_remove(struct tl_sched *sched, int fd);

/*
 * Run until no thread is ready, no call queued and no event registered, or tl_sched_stop(). Returns
 * 0, -EDEADLK inside one of its own threads, what tl_batch_flush() returns, or why poll(2) failed.
 */
int tl_sched_run(struct tl_sched *sched);
/* Ends the run, this or the next, after the thread or batch under way. For signal handlers too. */
void tl_sched_stop(struct tl_sched *sched);

struct tl_sched_stats {
	uint32_t size;
	uint32_t reserved;
	uint64_t threads_run;
	uint64_t calls;			/* calls completed */
	uint64_t crossings;		/* crossings made for them */
	uint64_t flushes_full;		/* ... because flush_at was reached */
	uint64_t flushes_idle;		/* ... because nothing was ready */
	uint64_t flushes_deadline;	/* ... because the oldest call was due */
};
/* The caller sets stats->size. A structure and a function of one name, as in stat(2). */
#ifdef __cplusplus
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
int tl_sched_stats(const struct tl_sched *sched, struct tl_sched_stats *stats);
#ifdef __cplusplus
#pragma GCC diagnostic pop
#endif

/* ---- Parallel calls: the paper's five operations ----------------------------------------- */

struct tl_psc;

/* pscregist: a ring served by workers. entries as for batches; spin_us 0..TL_SPIN_US_MAX. */
int tl_psc_regist(struct tl_psc **psc, unsigned int entries, unsigned int spin_us,
		  unsigned int flags);
/*
 * pscenter: the calling thread serves requests until tl_psc_exit() (returns the number served) or
 * a signal (returns -EINTR; call again to go on serving). Any number of threads may be inside.
 */
long tl_psc_enter(struct tl_psc *psc);
/* Convenience: start n threads that sit in tl_psc_enter(), all signals blocked. */
int tl_psc_start(struct tl_psc *psc, unsigned int n);
/* Fill in a request. Returns its slot or -EAGAIN. Not visible to workers before notify. */
int tl_psc_add(struct tl_psc *psc, uint32_t nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
	       uint64_t a4, uint64_t a5);
/* pscnotify: hand everything added since the last notify to the workers. Never blocks. */
int tl_psc_notify(struct tl_psc *psc);
/* pscwait: notify, then sleep until at most `left` requests are unfinished. */
int tl_psc_wait(struct tl_psc *psc, unsigned int left);
/* 1 and *result when the slot's request is complete (the slot is then free again), else 0. */
int tl_psc_result(struct tl_psc *psc, unsigned int slot, int64_t *result);
/* pscexit: send the workers home, join those of tl_psc_start(), free. Calls under way finish. */
void tl_psc_exit(struct tl_psc *psc);
enum tl_backend tl_psc_backend(const struct tl_psc *psc);
int tl_psc_stats(const struct tl_psc *psc, struct tl_stats *stats);

/* ---- Supervisor mode --------------------------------------------------------------------- */

/*
 * Switches process `pid`, all its threads, to supervisor mode, where its system calls cost no trap
 * and it can do anything to the machine, or back to user mode. 0 is the caller's own process. Each
 * thread changes at the end of a call of its own, at most one late. Returns 0 or -errno: -ENODEV
 * without the module, -EOPNOTSUPP, -EPERM or -ENOEXEC when refused.
 *
 * These functions, and those below, are for every thread and for signal handlers. The first call
 * of any opens a descriptor that stays open (close-on-exec).
 */
int switch_supervisor(long pid);
int switch_user(long pid);

/* Here, too, structures and functions share names. */
#ifdef __cplusplus
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
/*
 * The same with options (TL_SWITCH_*, with TL_MODE_SUPERVISOR only). *why (may be NULL) is the
 * reason of a refusal, TL_REFUSED_NONE after success and after errors that are none.
 */
int tl_switch(pid_t pid, enum tl_mode mode, unsigned int flags, enum tl_refusal *why);
/* What this machine and module offer. The caller sets info->size. */
int tl_supervisor(struct tl_supervisor *info);
/*
 * The switched processes that the caller's pid namespace sees, and behind them one entry with pid 0
 * and the counts of all that have ended or were switched back. Fills in the first n entries and
 * returns how many there are. entries may be NULL when n is 0. The module lists thousands at most:
 * entries behind them are all zero.
 */
static inline int tl_processes(struct tl_process *entries, unsigned int n);
#ifdef __cplusplus
#pragma GCC diagnostic pop
#endif
/* The same for a caller whose struct tl_process has entry_bytes bytes. */
int tl_process_list(struct tl_process *entries, unsigned int n, size_t entry_bytes);

/* The reason in words, without a capital or full stop: static text. */
const char *tl_refusal_text(enum tl_refusal why);

/* ---- What may be wrapped ----------------------------------------------------------------- */

enum tl_call_class {
	TL_CALL_REFUSED = 0,	/* never by a batch or a worker: answered -EOPNOTSUPP */
	TL_CALL_BATCH = 1,	/* in one's own batch; not by a worker (thread-local effect) */
	TL_CALL_ANY = 2,	/* batch or worker */
};

/* Class of a call; *name and *reason (each may be NULL) point to static text. -ENOSYS: unknown. */
int tl_call_class(uint32_t nr, const char **name, const char **reason);

/* ---- For people ----------------------------------------------------------------------------- */

/*
 * The same functions with as many arguments as the call has, pointers among them:
 * TL_ADD(batch, SYS_read, fd, buffer, sizeof(buffer)).
 */
#define TL_ADD(batch, ...) TL_ADD_(batch, __VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define TL_ADD_(batch, nr, a0, a1, a2, a3, a4, a5, ...) \
	tl_batch_add(batch, (uint32_t)(nr), (uint64_t)(a0), (uint64_t)(a1), (uint64_t)(a2), \
		     (uint64_t)(a3), (uint64_t)(a4), (uint64_t)(a5))
#define TL_CALL(sched, continuation, result, ...) \
	TL_CALL_(sched, continuation, result, __VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define TL_CALL_(sched, continuation, result, nr, a0, a1, a2, a3, a4, a5, ...) \
	tl_call(sched, continuation, result, (uint32_t)(nr), (uint64_t)(a0), (uint64_t)(a1), \
		(uint64_t)(a2), (uint64_t)(a3), (uint64_t)(a4), (uint64_t)(a5))
#define TL_PSC_ADD(psc, ...) TL_PSC_ADD_(psc, __VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define TL_PSC_ADD_(psc, nr, a0, a1, a2, a3, a4, a5, ...) \
	tl_psc_add(psc, (uint32_t)(nr), (uint64_t)(a0), (uint64_t)(a1), (uint64_t)(a2), \
		   (uint64_t)(a3), (uint64_t)(a4), (uint64_t)(a5))

/* ---- Inline parts ------------------------------------------------------------------------ */

static inline int tl_batch_add(struct tl_batch *batch, uint32_t nr, uint64_t a0, uint64_t a1,
			       uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5)
{
	struct tl_request *request = batch->next;

	if (request == batch->end)
		return -11; /* -EAGAIN, without dragging errno.h into every user */
	request->nr = nr;
	request->args[0] = a0;
	request->args[1] = a1;
	request->args[2] = a2;
	request->args[3] = a3;
	request->args[4] = a4;
	request->args[5] = a5;
	__atomic_store_n(&request->state, TL_SUBMITTED, __ATOMIC_RELEASE);
	batch->next = request + 1;
	return (int)(request - batch->requests);
}

static inline uint32_t tl_batch_queued(const struct tl_batch *batch)
{
	return (uint32_t)(batch->next - batch->first);
}

static inline int64_t tl_batch_result(const struct tl_batch *batch, unsigned int slot)
{
	return batch->requests[slot].result;
}

static inline bool tl_batch_done(const struct tl_batch *batch, unsigned int slot)
{
	/* Pairs with the executor's release: what the call has written is there. */
	return batch->requests &&
	       __atomic_load_n(&batch->requests[slot].state, __ATOMIC_ACQUIRE) == TL_DONE;
}

static inline int tl_processes(struct tl_process *entries, unsigned int n)
{
	return tl_process_list(entries, n, sizeof(*entries));
}

#ifdef __cplusplus
}
#endif

#endif /* TRAPLESS_H */
