// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The engine of asynchronous files: the ring that operations go through, its workers and its end.
 * How an operation begins is the business of operation.c, and what it does next that of sequence.c.
 *
 * The engine has threads of its own and not those of tl_psc_start(), because a call that blocks for
 * ever must not block tl_files_destroy(). Each thread holds a reference to the engine, and so does
 * the caller: the thread that drops the last one frees everything.
 */
#include "files.h"
#include "../enter.h"
#include "../futex.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES 256u
#define GRACE_NS 100000000u	/* for calls that are under way when the engine is destroyed */

/* ---- Lists ------------------------------------------------------------------------------- */

void tl_op_append(struct op_list *list, struct tl_files_op *op, enum op_state state)
{
	op->state = state;
	op->next = NULL;
	op->previous = list->last;
	if (list->last)
		list->last->next = op;
	else
		list->first = op;
	list->last = op;
}

void tl_op_prepend(struct op_list *list, struct tl_files_op *op, enum op_state state)
{
	op->state = state;
	op->next = list->first;
	op->previous = NULL;
	if (list->first)
		list->first->previous = op;
	else
		list->last = op;
	list->first = op;
}

struct tl_files_op *tl_op_detach(struct op_list *list, struct tl_files_op *op)
{
	if (op->previous)
		op->previous->next = op->next;
	else
		list->first = op->next;
	if (op->next)
		op->next->previous = op->previous;
	else
		list->last = op->previous;
	return op;
}

/* ---- Through the ring -------------------------------------------------------------------- */

static void finish(struct tl_files *files, struct tl_files_op *op)
{
	tl_op_append(&files->complete, op, OP_COMPLETE);
	/* The descriptor also announces operations that complete without the ring. */
	tl_psc_signal(files->psc);
}

static bool push(struct tl_files *files, struct tl_files_op *op)
{
	const struct tl_request *call = &op->requests[0];
	int slot;

	if (op->n == 1)
		slot = tl_psc_add(files->psc, call->nr, call->args[0], call->args[1], call->args[2],
				  call->args[3], call->args[4], call->args[5]);
	else
		slot = tl_psc_add_program(files->psc, op->program, op->n, TL_STEPS_DEFAULT);
	if (slot < 0)
		return false;
	op->slot = (uint32_t)slot;
	tl_psc_set_data(files->psc, op->slot, (uintptr_t)op);
	tl_op_append(&files->made, op, OP_MADE);
	files->added++;
	return true;
}

void tl_op_add(struct tl_files *files, struct tl_files_op *op)
{
	bool opened = op->fd >= 0;

	if ((opened || !files->queued.first) && push(files, op))
		return;
	/* Those with an open descriptor go first, so that no more are open than there are slots. */
	if (opened)
		tl_op_prepend(&files->queued, op, OP_QUEUED);
	else
		tl_op_append(&files->queued, op, OP_QUEUED);
}

/* Returns whether the operation has ended; otherwise its next requests are filled in. */
static bool advance(struct tl_files_op *op, int64_t result)
{
	if (op->n == 1)
		op->requests[0].result = result;
	if (op->advance)
		return op->advance(op);
	op->result = result;
	return true;
}

int tl_files_submit(struct tl_files *files)
{
	int result;

	if (tl_files_is_foreign(files))
		return -EPERM;
	while (files->queued.first) {
		struct tl_files_op *op = tl_op_detach(&files->queued, files->queued.first);

		if (!push(files, op)) {
			tl_op_prepend(&files->queued, op, OP_QUEUED);
			break;
		}
	}
	if (!files->added)
		return 0;
	result = tl_psc_notify(files->psc);
	if (result < 0)
		return result;
	files->added = 0;
	return 0;
}

int tl_files_next(struct tl_files *files, struct tl_files_result *result)
{
	struct tl_psc_completion completion;
	struct tl_files_op *op;

	if (tl_files_is_foreign(files))
		return -EPERM;
	while (!files->complete.first) {
		if (tl_psc_next(files->psc, &completion) != 1)
			return tl_files_submit(files);
		op = tl_op_detach(&files->made, (void *)(uintptr_t)completion.user_data);
		if (advance(op, completion.result))
			tl_op_append(&files->complete, op, OP_COMPLETE);
		else
			tl_op_add(files, op);
	}
	op = tl_op_detach(&files->complete, files->complete.first);
	tl_op_append(&files->taken, op, OP_TAKEN);
	files->pending--;
	result->user_data = op->user_data;
	result->result = op->result;
	result->data = op->data;
	result->op = op;
	return 1;
}

void tl_files_cancel(struct tl_files *files, struct tl_files_op *op)
{
	/* An operation that tidies up has ended but for that. */
	if (tl_files_is_foreign(files) || op->canceled || op->tidies || op->state > OP_MADE)
		return;
	if (op->state == OP_QUEUED) {
		tl_op_detach(&files->queued, op);
	} else {
		op->canceled = true;
		if (tl_psc_cancel(files->psc, op->slot) != 1)
			return;
		tl_op_detach(&files->made, op);
	}
	op->canceled = true;
	op->result = -ECANCELED;
	if (op->fd < 0) {
		finish(files, op);
		return;
	}
	/* It sees that it is canceled, and goes on with what tidies up. */
	op->advance(op);
	tl_op_add(files, op);
	tl_files_submit(files);
}

/* ---- Creation and end -------------------------------------------------------------------- */

static void free_list(struct op_list *list)
{
	while (list->first) {
		struct tl_files_op *op = tl_op_detach(list, list->first);

		free(op->data);
		free(op->strings);
		free(op);
	}
}

/* Nobody takes the result: what the call has opened is closed. */
static void forget(struct tl_files_op *op)
{
	if (!op->advance && op->requests[0].nr == SYS_openat && op->result >= 0)
		raw_syscall(SYS_close, (uint64_t)op->result, 0, 0, 0, 0, 0);
}

/* Makes the one call of an operation that tidies up. */
static int64_t tidy(const struct tl_files_op *op)
{
	const struct tl_request *call = &op->requests[0];

	return raw_syscall(call->nr, call->args[0], call->args[1], call->args[2], 0, 0, 0);
}

/* Ends an operation that nobody will take, by the requests that were made. */
static void abandon(struct tl_files_op *op, int64_t result)
{
	op->canceled = true;
	for (uint32_t i = 0; op->n > 1 && i < op->n; i++)
		if (op->program[i].state != TL_DONE)
			op->program[i].result = -ECANCELED;
	while (!advance(op, result))
		result = tidy(op);
	forget(op);
}

/* The same for an operation of which a worker makes nothing more. */
static void abandon_unmade(struct tl_files_op *op)
{
	abandon(op, op->tidies ? tidy(op) : -ECANCELED);
}

static void abandon_list(struct op_list *list)
{
	for (struct tl_files_op *op = list->first; op; op = op->next)
		abandon_unmade(op);
}

/* Takes what has completed, for which nobody waits any more. */
static void drain(struct tl_files *files)
{
	struct tl_psc_completion completion;

	while (tl_psc_next(files->psc, &completion) == 1) {
		struct tl_files_op *op = (void *)(uintptr_t)completion.user_data;

		abandon(tl_op_detach(&files->made, op), completion.result);
		tl_op_append(&files->taken, op, OP_TAKEN);
	}
}

static void drop(struct tl_files *files)
{
	if (__atomic_sub_fetch(&files->references, 1, __ATOMIC_SEQ_CST)) {
		futex_wake(&files->references, INT_MAX);
		return;
	}
	if (!tl_files_is_foreign(files)) {
		drain(files);
		abandon_list(&files->made);
	}
	tl_psc_destroy(files->psc);
	free_list(&files->queued);
	free_list(&files->made);
	free_list(&files->complete);
	free_list(&files->taken);
	free_list(&files->unused);
	free(files);
}

static void *worker(void *arg)
{
	struct tl_files *files = arg;

	while (tl_psc_enter(files->psc) == -EINTR)
		;
	drop(files);
	return NULL;
}

/* Starts as many of n workers as there can be. Returns 0, or -errno if there is none. */
static int start_workers(struct tl_files *files, unsigned int n)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	unsigned int started = 0;
	int error = 0, saved = errno;
	pthread_t thread;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (started < n && !error) {
		__atomic_fetch_add(&files->references, 1, __ATOMIC_SEQ_CST);
		error = pthread_create(&thread, &attributes, worker, files);
		if (error)
			__atomic_sub_fetch(&files->references, 1, __ATOMIC_SEQ_CST);
		else
			started++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	errno = saved;
	return started ? 0 : -error;
}

int tl_files_create(struct tl_files **out, unsigned int workers, unsigned int flags)
{
	struct tl_files *files;
	int result;

	if (!workers || workers > TL_ENTRIES_MAX || flags & ~(TL_PLAIN | TL_MODULE))
		return -EINVAL;
	files = tl_heap_resize(NULL, 1, sizeof(*files));
	if (!files)
		return -ENOMEM;
	memset(files, 0, sizeof(*files));
	files->references = 1;
	result = tl_psc_create(&files->psc, ENTRIES, 0, flags | TL_COMPLETIONS);
	if (result) {
		free(files);
		return result;
	}
	result = tl_psc_fd(files->psc);
	if (result >= 0)
		result = start_workers(files, workers);
	if (result) {
		drop(files);
		return result;
	}
	*out = files;
	return 0;
}

/* Waits until the caller's reference is the only one, or until no worker can make progress. */
static void await_workers(struct tl_files *files, bool calls_are_made)
{
	uint64_t end_ns = tl_psc_now_ns() + GRACE_NS;
	struct timespec nap = { .tv_nsec = GRACE_NS / 10 };
	uint32_t references;

	while ((references = __atomic_load_n(&files->references, __ATOMIC_SEQ_CST)) > 1 &&
	       (!calls_are_made || tl_psc_now_ns() < end_ns))
		futex_wait_for(&files->references, references, &nap);
}

int tl_files_destroy(struct tl_files *files)
{
	struct tl_files_op *op, *next;
	int busy = 0;

	if (!files)
		return 0;
	if (tl_files_is_foreign(files)) {
		files->references = 1;
		drop(files);
		return 0;
	}
	for (op = files->made.first; op; op = next) {
		next = op->next;
		if (tl_psc_cancel(files->psc, op->slot) != 1)
			continue;
		abandon_unmade(tl_op_detach(&files->made, op));
		tl_op_append(&files->taken, op, OP_TAKEN);
	}
	abandon_list(&files->queued);
	for (op = files->complete.first; op; op = op->next)
		forget(op);
	tl_psc_exit(files->psc);
	await_workers(files, files->made.first);
	drain(files);
	for (op = files->made.first; op; op = op->next)
		busy++;
	drop(files);
	return busy;
}

enum tl_backend tl_files_backend(const struct tl_files *files)
{
	return tl_psc_backend(files->psc);
}

int tl_files_fd(struct tl_files *files)
{
	return tl_psc_fd(files->psc);
}

unsigned int tl_files_pending(const struct tl_files *files)
{
	return files->pending;
}
