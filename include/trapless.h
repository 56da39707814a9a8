/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * The C interface of libtrapless. It declares the library's functions; the interface to the module
 * is linux/trapless.h.
 *
 * These families make system calls without a trap for each call:
 *   tl_batch_*   wrapped calls: a program queues N calls and enters the kernel once
 *                (wrapped-system-call, Fig. 1 and 4)
 *   tl_sched_*   fine-grained threads, which issue wrapped calls and name their continuations
 *                (wrapped-system-call, section 2.1), in trapless_sched.h
 *   tl_psc_*     parallel calls, which worker threads serve (parallel-system-call, section 2)
 *   tl_files_*   file operations for event loops, which workers serve as parallel calls, in
 *                trapless_files.h
 *   tl_scan_*, tl_walk_*   directories and trees with the attributes of their entries, in
 *                trapless_walk.h
 * Another family removes the trap from the calls that a program makes anyway:
 *   tl_switch_*  switch a process to supervisor mode and back (running-mode-switch, Table 1)
 * The papers' own names of these functions are in trapless_paper.h.
 *
 * Errors: every function that can fail returns -errno and leaves errno alone. The manual pages of
 * section 3 list every error.
 *
 * Without the module the same programs run with the same results: the library makes the calls of a
 * batch by plain system calls, and ordinary threads are the workers. The library chooses this
 * backend when it creates an object (environment TRAPLESS_BACKEND=auto|module|plain), and
 * tl_*_backend() reports it.
 *
 * A slot may be the error that the adding function returned instead of one: functions that take a
 * slot then return that error, and change nothing. A call that takes such a slot's result by
 * TL_RESULT() has -EINVAL. A slot that is passed without TL_RESULT() is a plain number: slot 0,
 * given to read() or close() as a descriptor, is standard input.
 *
 * Concurrency: one thread at a time may use an object, except where a function says otherwise. A
 * signal handler may call tl_sched_stop() and the functions of supervisor mode, and no others. An
 * object belongs to the process that created it. In the child of a fork its functions answer
 * -EPERM, or -EAGAIN where they would queue a call, and only destroying the object has an effect.
 */
#ifndef TRAPLESS_H
#define TRAPLESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <linux/trapless.h>

/* libtrapless-ffi has the inline functions as symbols, for other languages: there this is empty. */
#ifndef TL_INLINE
#define TL_INLINE static inline
#endif

/* TL_ARG(argument): any argument as 64 bits. */
#ifdef __cplusplus
extern "C++" { /* the including file may be inside extern "C" */
template <typename T> inline uint64_t tl_arg(T value)
{
	return static_cast<uint64_t>(value);
}

template <typename T> inline uint64_t tl_arg(T *pointer)
{
	return reinterpret_cast<uint64_t>(pointer);
}

template <> inline uint64_t tl_arg(decltype(nullptr))
{
	return 0;
}
}
#define TL_ARG(argument) tl_arg(argument)
#else
#define TL_ARG(argument) ((uint64_t)(argument))
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum tl_backend {
	TL_BACKEND_PLAIN = 0,	/* plain system calls, ordinary threads */
	TL_BACKEND_MODULE = 1,	/* /dev/trapless */
};

/* Flags of the create functions. 0 uses the module where possible, and plain calls otherwise. */
#define TL_PLAIN   (1u << 0)	/* never use the module */
#define TL_MODULE  (1u << 1)	/* fail with -ENODEV or -ENOENT where the module is absent */
#define TL_UNORDERED (1u << 2)	/* batches and schedulers: calls may be made in any order */
#define TL_COMPLETIONS (1u << 3)	/* parallel calls: tl_psc_next() says what is complete */

#define TL_UNORDERED_ENTRIES_MAX (TL_ENTRIES_MAX / 2)	/* slots of a batch with TL_UNORDERED */

/* ---- Wrapped calls ----------------------------------------------------------------------- */

/*
 * Only the inline functions below use these fields; a program reads them through those functions.
 * The fields are pointers and not indices, so that queueing a call is hardly more than its stores.
 */
struct tl_batch {
	struct tl_request *requests;	/* slot 0; all four are NULL in the child of a fork */
	struct tl_request *first;	/* the oldest request that waits for a flush */
	struct tl_request *next;	/* the next request to fill in */
	struct tl_request *end;		/* the end of the last slot */
	uint32_t program;		/* TL_PROGRAM_*: what the queued calls make use of */
	uint32_t reserved;
};

#define TL_PROGRAM_STEPS (1u << 0)	/* some number is none that a batch knows */
#define TL_PROGRAM_JUMPS (1u << 1)	/* calls may be skipped */
#define TL_PROGRAM_BEGUN (1u << 2)	/* a flush stopped before its end */
#define TL_PROGRAM_LOOPS (1u << 3)	/* calls may be made again */

/*
 * entries is 1 to TL_ENTRIES_MAX (4,096), or to TL_UNORDERED_ENTRIES_MAX (2,048) with TL_UNORDERED,
 * and is rounded up to a power of two. Returns -EINVAL for any other number, for unknown flags, and
 * for an unknown value of TRAPLESS_BACKEND.
 */
int tl_batch_create(struct tl_batch **batch, unsigned int entries, unsigned int flags);
/* Drops the calls that are still queued, and makes none of them. */
void tl_batch_destroy(struct tl_batch *batch);
enum tl_backend tl_batch_backend(const struct tl_batch *batch);
/*
 * Returns why the library makes calls of the batch by plain system calls, in words: static text
 * that begins in lower case and has no full stop. Returns NULL where the module has made all calls
 * so far, and so before the first flush. With the module the reason is that of the last flush
 * which the module has refused.
 */
const char *tl_batch_reason(const struct tl_batch *batch);

/*
 * Queues one call and returns its slot: 0 for the first call after a complete flush, then 1 to
 * entries - 1. Returns -EAGAIN when the batch is full, until a flush has completed all calls, and
 * always in the child of a fork, because a batch belongs to the process that created it.
 */
TL_INLINE int tl_batch_add(struct tl_batch *batch, uint32_t nr, uint64_t a0, uint64_t a1,
			   uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5);

/*
 * Executes all queued calls in order, by one crossing unless signals interrupt it. Returns how many
 * calls this flush has completed; for programs of calls see below. That number is less than the
 * number of queued calls only when a signal handler has run; another flush then makes the rest. A
 * call that the handler interrupted is complete, with result -EINTR, or still queued if the handler
 * has SA_RESTART. The calls of a traced thread are made one by one, so that the tracer sees them.
 * Returns -EPERM in the child of a fork.
 *
 * With TL_UNORDERED the library chooses the order. Of 128 calls that were queued together, those
 * with the same number and first argument are made side by side. Calls with the same number and
 * first argument are made in the order in which they were queued. Any two other calls may change
 * places, unless a barrier stands between them. The completed calls of an early return are then not
 * the oldest ones: tl_batch_done() tells which they are.
 */
int tl_batch_flush(struct tl_batch *batch);

/*
 * Flushes until no call is queued: it continues after a signal handler (-EINTR for a program of
 * calls, a smaller number for other batches) and after -ETIME. Returns the number of calls that
 * were queued, which are all complete, or any other error of tl_batch_flush(): calls that are not
 * complete then stay queued. It never returns from a program of calls that never ends. Where a
 * handler asks to stop, use tl_batch_flush() in the loop that tl_batch(3) has under Signals.
 */
int tl_batch_flush_all(struct tl_batch *batch);

/*
 * With TL_UNORDERED, all calls queued so far are complete before a call that is queued later
 * begins. Without it the function has no effect, because calls are made in order anyway. It makes
 * no crossing. Returns 0, or -EPERM in the child of a fork.
 */
int tl_batch_barrier(struct tl_batch *batch);

/* Returns the number of calls that wait for a flush. */
TL_INLINE uint32_t tl_batch_queued(const struct tl_batch *batch);

/*
 * Returns the result of a slot that tl_batch_add() returned. The result is valid from the flush
 * that completed the call until the slot is used again. The child of a fork has no results, and may
 * not ask for one.
 */
TL_INLINE int64_t tl_batch_result(const struct tl_batch *batch, unsigned int slot);

/*
 * Gives a queued call data of the caller's own, which tl_batch_data() returns, also when the call
 * is complete. It stays with the slot until it is set again, and is 0 before. Returns 0, -EINVAL if
 * the slot's call is not queued, -ENOMEM, or -EPERM in the child of a fork.
 */
int tl_batch_set_data(struct tl_batch *batch, unsigned int slot, uint64_t user_data);
/* Returns the data of a slot; 0 where the batch has no such slot, and in the child of a fork. */
uint64_t tl_batch_data(const struct tl_batch *batch, unsigned int slot);

/* Returns whether the slot's call is complete, and its result therefore valid. */
TL_INLINE bool tl_batch_done(const struct tl_batch *batch, unsigned int slot);

/*
 * Programs of calls. A batch is a program if one of its calls takes an argument from an earlier one
 * or from memory, or jumps. TL_RESULT(), TL_WORD32() and TL_WORD64() in the number say which
 * arguments are taken; <linux/trapless.h> says all about a step. This reads a whole file whose size
 * nobody knows yet, in one crossing:
 *
 *	int o = TL_ADD(b, SYS_openat, AT_FDCWD, path, O_RDONLY);
 *	TL_ADD(b, SYS_fstat | TL_RESULT(0), o, &st);
 *	TL_ADD(b, SYS_read | TL_RESULT(0) | TL_WORD64(2), o, buffer, &st.st_size);
 *	TL_ADD(b, SYS_close | TL_RESULT(0), o);
 *	tl_batch_flush(b);
 *
 * If the file cannot be opened, the result of the other three calls is -ECANCELED.
 *
 * A program is complete when tl_batch_flush() returns the number of its calls; calls that were
 * jumped over then have the result -ECANCELED. The flush returns -EINTR if a signal handler has run
 * and -ETIME if the program has made TL_STEPS_DEFAULT steps. Another flush then goes on at the slot
 * of tl_batch_at(). A batch with TL_UNORDERED knows no programs: there, such a number is an
 * unknown call.
 */
#define TL_STEPS_DEFAULT 1048576u

/* Does what tl_batch_flush() does, with a budget of `steps` steps for a program. */
int tl_batch_flush_steps(struct tl_batch *batch, uint64_t steps);

/*
 * After the call in `slot` goes on with the call in `target` if the condition is true of its
 * result. The target may be any slot of the program, before or behind this one, or
 * tl_batch_next(), which is its end as long as nothing else is added. A call has one jump at most;
 * a second one replaces the first. Returns 0, -EINVAL if the call is not queued, `target` is
 * beyond the next slot, or the batch has TL_UNORDERED, or -EPERM in the child of a fork.
 */
int tl_batch_jump(struct tl_batch *batch, unsigned int slot, enum tl_condition condition,
		  unsigned int target);

/* Returns the slot that the next tl_batch_add() fills in. */
TL_INLINE unsigned int tl_batch_next(const struct tl_batch *batch);

/* Returns the slot with which the next flush begins: where the last one stopped. */
unsigned int tl_batch_at(const struct tl_batch *batch);

/*
 * Reads the module's counts or, with plain calls, the library's own counts in the same form, where
 * each call is one crossing. The caller sets stats->size; fields beyond it are left alone.
 */
int tl_batch_get_stats(const struct tl_batch *batch, struct tl_stats *stats);

/* ---- Parallel calls ---------------------------------------------------------------------- */

struct tl_psc;

/*
 * Creates a ring that workers serve. entries is 1 to TL_ENTRIES_MAX, and is rounded up to a power
 * of two. An idle worker spins for spin_us microseconds, 0 to TL_SPIN_US_MAX, before it sleeps.
 *
 * There are two ways to get results. Without TL_COMPLETIONS, tl_psc_result() looks at one slot.
 * With it, tl_psc_next() returns the completions one by one, with the data that the request was
 * given, and no slot need be looked at.
 */
int tl_psc_create(struct tl_psc **psc, unsigned int entries, unsigned int spin_us,
		  unsigned int flags);
/*
 * The calling thread becomes a worker: it serves requests until tl_psc_destroy(), and returns their
 * number. A signal ends it with -EINTR; the thread may then enter again. Any number of threads may
 * be workers at a time.
 */
long tl_psc_enter(struct tl_psc *psc);
/* Starts n worker threads, which block all signals and call tl_psc_enter(). */
int tl_psc_start(struct tl_psc *psc, unsigned int n);
/* Fills in a request. Returns its slot, or -EAGAIN. tl_psc_notify() makes it visible to workers. */
int tl_psc_add(struct tl_psc *psc, uint32_t nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
	       uint64_t a4, uint64_t a5);
/*
 * Adds a chain of n calls as one request: one worker makes them in order, and they complete
 * together. An error ends the chain. This writes and makes sure that the data is on the disk:
 *
 *	struct tl_request chain[] = {
 *		TL_REQUEST(SYS_write, fd, buffer, bytes),
 *		TL_REQUEST(SYS_fdatasync, fd),
 *	};
 *	int slot = tl_psc_add_chain(psc, chain, 2);
 *
 * The chain belongs to the workers until the request is complete. The result of the request is that
 * of the last call that was made, here 0 or the error of either call. Each call's own result is
 * then in chain[i].result, and is -ECANCELED if the call was not made. An argument may be the
 * result of an earlier call or a word of memory, as in programs: TL_RESULT(0) in the number says
 * that the first argument is the index of a call in the chain.
 *
 * Returns the slot, -EAGAIN, or -EINVAL if n is not 1 to TL_ENTRIES_MAX.
 */
int tl_psc_add_chain(struct tl_psc *psc, struct tl_request *chain, unsigned int n);
/*
 * Does the same with a program of calls: errors do not end it, and calls may jump
 * (tl_request_jump()). If it makes more than `steps` steps, its result is -ETIME.
 */
int tl_psc_add_program(struct tl_psc *psc, struct tl_request *program, unsigned int n,
		       uint64_t steps);
/* One call of a chain or program. TL_REQUEST() takes as many arguments as the call has. */
TL_INLINE struct tl_request tl_request_of(uint32_t nr, uint64_t a0, uint64_t a1, uint64_t a2,
					  uint64_t a3, uint64_t a4, uint64_t a5);
/* This call of a chain or program goes on with that of index `target` if the condition holds. */
TL_INLINE void tl_request_jump(struct tl_request *request, enum tl_condition condition,
			       unsigned int target);
/* Submits all requests that were added since the last notify to the workers. Never blocks. */
int tl_psc_notify(struct tl_psc *psc);
/* Does a notify, then sleeps until at most `left` requests are unfinished. */
int tl_psc_wait(struct tl_psc *psc, unsigned int left);
/* Does the same, but returns -ETIME after timeout_ns nanoseconds. */
int tl_psc_wait_for(struct tl_psc *psc, unsigned int left, uint64_t timeout_ns);
/*
 * Returns 1, stores *result and frees the slot when the slot's request is complete; returns 0 when
 * it is not. Returns -EINVAL for a ring with TL_COMPLETIONS.
 */
int tl_psc_result(struct tl_psc *psc, unsigned int slot, int64_t *result);
/*
 * Cancels a request that no worker has begun. Returns 1 if it will not be made: it has no result
 * and no completion, and its slot is no longer the caller's. Returns 0 if it has begun, is
 * complete, or there is none: nothing has changed then. A program has begun once a step was made.
 */
int tl_psc_cancel(struct tl_psc *psc, unsigned int slot);

struct tl_psc_completion {
	uint64_t user_data;		/* of tl_psc_set_data(), or 0 */
	int64_t result;
	uint32_t slot;			/* free again */
	uint32_t reserved;
};
/* Sets what the completion of a request that was just added will have as user_data. */
int tl_psc_set_data(struct tl_psc *psc, unsigned int slot, uint64_t user_data);
/*
 * Takes one completion and returns 1, or returns 0 if there is none. They come in no special
 * order.
 */
int tl_psc_next(struct tl_psc *psc, struct tl_psc_completion *completion);
/*
 * Returns a descriptor for poll(2), epoll(7), io_uring(7) and event loops, always the same one. It
 * is readable when tl_psc_next() has returned 0 before and may now return 1, and when the slot of a
 * canceled request is free again. When it is, call tl_psc_next() until it returns 0. The descriptor
 * is closed by tl_psc_destroy().
 */
int tl_psc_fd(struct tl_psc *psc);
/*
 * Makes all workers return after their current calls, joins the threads of tl_psc_start() and frees
 * the ring.
 */
void tl_psc_destroy(struct tl_psc *psc);
enum tl_backend tl_psc_backend(const struct tl_psc *psc);
int tl_psc_get_stats(const struct tl_psc *psc, struct tl_stats *stats);

/* ---- Supervisor mode --------------------------------------------------------------------- */

/*
 * Switch all threads of process `pid` to supervisor mode, or back to user mode; 0 is the caller's
 * own process. In supervisor mode the system calls of a process cost no trap, and the process can
 * do anything to the machine. Each thread changes its mode at the end of a system call of its own,
 * one call late at most. They return 0 or -errno: -ENODEV without the module; -EOPNOTSUPP, -EPERM
 * or -ENOEXEC when the switch is refused.
 *
 * Any thread and any signal handler may call the functions of supervisor mode at any time. The
 * first call of any of them opens a descriptor that stays open (close-on-exec).
 */
int tl_switch_supervisor(long pid);
int tl_switch_user(long pid);
/*
 * Switches to `mode` with the options of `flags` (TL_SWITCH_*, with TL_MODE_SUPERVISOR only). *why
 * is the reason of a refusal, and TL_REFUSED_NONE after success and other errors; why may be NULL.
 */
int tl_switch_mode(pid_t pid, enum tl_mode mode, unsigned int flags, enum tl_refusal *why);
/* Reads what this machine and module offer. The caller sets info->size. */
int tl_supervisor_get(struct tl_supervisor *info);
/*
 * Lists the switched processes that the caller's PID namespace sees. A last entry, with pid 0, has
 * the counts of all processes that have ended or were switched back. The function fills in the
 * first n entries and returns the number of all. entries may be NULL when n is 0. The module lists
 * some thousand entries at most; the function fills further entries with zeros.
 */
TL_INLINE int tl_process_list(struct tl_process *entries, unsigned int n);
/* Does the same for a caller whose struct tl_process has entry_bytes bytes. */
int tl_process_list_sized(struct tl_process *entries, unsigned int n, size_t entry_bytes);

/* Returns the reason in words: static text that begins in lower case and has no full stop. */
const char *tl_refusal_text(enum tl_refusal why);

/* ---- What may be wrapped ----------------------------------------------------------------- */

enum tl_call_class {
	TL_CALL_REFUSED = 0,	/* batches and workers answer it with -EOPNOTSUPP */
	TL_CALL_BATCH = 1,	/* batches make it; workers do not: its effect is thread-local */
	TL_CALL_ANY = 2,	/* batches and workers make it */
	TL_CALL_NULL_MASK = 3,	/* they make it where its signal mask is null */
	TL_CALL_SELF_VALUE = 4,	/* as ANY; workers refuse a value that means their thread */
};

/*
 * Returns the class of a call, or -ENOSYS for an unknown number. *name and *reason then point to
 * static text; name and reason may be NULL.
 */
int tl_call_get_class(uint32_t nr, const char **name, const char **reason);

/* ---- Macros with as many arguments as the call has --------------------------------------- */

/*
 * An argument may be a pointer: TL_ADD(batch, SYS_read, fd, buffer, sizeof(buffer)). Neither the
 * number nor the types of the arguments are checked; those of trapless_typed.h are.
 */
#define TL_ADD(batch, ...) TL_ADD_(batch, __VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define TL_ADD_(batch, nr, a0, a1, a2, a3, a4, a5, ...) \
	tl_batch_add(batch, TL_CAST(uint32_t, nr), TL_ARG(a0), TL_ARG(a1), TL_ARG(a2), \
		     TL_ARG(a3), TL_ARG(a4), TL_ARG(a5))
#define TL_PSC_ADD(psc, ...) TL_PSC_ADD_(psc, __VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define TL_PSC_ADD_(psc, nr, a0, a1, a2, a3, a4, a5, ...) \
	tl_psc_add(psc, TL_CAST(uint32_t, nr), TL_ARG(a0), TL_ARG(a1), TL_ARG(a2), \
		   TL_ARG(a3), TL_ARG(a4), TL_ARG(a5))

/* One call of a chain or a program: TL_REQUEST(SYS_write, fd, buffer, bytes). */
#define TL_REQUEST(...) TL_REQUEST_(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define TL_REQUEST_(nr, a0, a1, a2, a3, a4, a5, ...) \
	tl_request_of(TL_CAST(uint32_t, nr), TL_ARG(a0), TL_ARG(a1), TL_ARG(a2), TL_ARG(a3), \
		      TL_ARG(a4), TL_ARG(a5))

/* ---- Inline parts ------------------------------------------------------------------------ */

TL_INLINE int tl_batch_add(struct tl_batch *batch, uint32_t nr, uint64_t a0, uint64_t a1,
			   uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5)
{
	struct tl_request *request = batch->next;

	if (request == batch->end)
		return -11; /* -EAGAIN, without dragging errno.h into every user */
	/* Most numbers are constants: the compiler then drops these two lines. */
	if (nr >= TL_NR_INCREASE)
		batch->program |= TL_PROGRAM_STEPS;
	request->nr = nr;
	request->args[0] = a0;
	request->args[1] = a1;
	request->args[2] = a2;
	request->args[3] = a3;
	request->args[4] = a4;
	request->args[5] = a5;
	__atomic_store_n(&request->state, TL_CAST(uint8_t, TL_SUBMITTED), __ATOMIC_RELEASE);
	batch->next = request + 1;
	return TL_CAST(int, request - batch->requests);
}

TL_INLINE uint32_t tl_batch_queued(const struct tl_batch *batch)
{
	return TL_CAST(uint32_t, batch->next - batch->first);
}

TL_INLINE unsigned int tl_batch_next(const struct tl_batch *batch)
{
	return TL_CAST(unsigned int, batch->next - batch->requests);
}

TL_INLINE int64_t tl_batch_result(const struct tl_batch *batch, unsigned int slot)
{
	/* Before slot 0 there are results for slots that are errors. */
	return batch->requests[TL_CAST(int, slot)].result;
}

TL_INLINE bool tl_batch_done(const struct tl_batch *batch, unsigned int slot)
{
	/* Pairs with the executor's release: what the call has written is there. */
	return batch->requests &&
	       __atomic_load_n(&batch->requests[TL_CAST(int, slot)].state, __ATOMIC_ACQUIRE) ==
	       TL_DONE;
}

TL_INLINE struct tl_request tl_request_of(uint32_t nr, uint64_t a0, uint64_t a1, uint64_t a2,
					  uint64_t a3, uint64_t a4, uint64_t a5)
{
	struct tl_request request = { nr, TL_CAST(uint8_t, TL_SUBMITTED), 0, 0,
				      { a0, a1, a2, a3, a4, a5 }, 0 };

	return request;
}

TL_INLINE void tl_request_jump(struct tl_request *request, enum tl_condition condition,
			       unsigned int target)
{
	request->nr |= TL_JUMPS;
	request->condition = TL_CAST(uint8_t, condition);
	request->target = TL_CAST(uint16_t, target);
}

TL_INLINE int tl_process_list(struct tl_process *entries, unsigned int n)
{
	return tl_process_list_sized(entries, n, sizeof(*entries));
}

#ifdef __cplusplus
}
#endif

#include <trapless_files.h>
#include <trapless_sched.h>
#include <trapless_walk.h>

#endif /* TRAPLESS_H */
