// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Wrapped calls (wrapped-system-call, Fig. 1 and 4): a ring of requests and the crossing that
 * executes them. It owns the decision when a request is complete. Queueing is inline in trapless.h;
 * fine-grained threads are the business of sched.c.
 *
 * A flush reads from the states in the ring which requests are complete, and never from the return
 * value of lseek(2) alone: a signal handler that emulates a call (SIGSYS) may have rewritten that.
 *
 * With TL_UNORDERED the ring has twice as many places as the caller has slots. Requests that are in
 * order already are executed in place. All others are copied in order to the places behind the
 * slots and executed there, and their results are copied back. So a slot always belongs to its
 * call, and a signal handler may leave a flush by a jump at any point.
 */
#include "internal.h"
#include "enter.h"
#include "order.h"

#include <errno.h>
#include <string.h>

struct batch {
	struct tl_batch head;		/* the part that callers and inline functions see */
	int fd;
	enum tl_backend backend;
	bool direct;			/* in strict order by the module: no other case */
	struct order *order;		/* NULL: strict order */
	struct tl_program *program;	/* where a program is; of the module's ring, or `own` */
	struct tl_program own;
	struct tl_stats counts;		/* of the calls that the library made itself */
	/* The ring without the module, and what stands before slot 0. */
	struct tl_request errors[TL_SLOT_ERRORS] __attribute__((aligned(64)));
	struct tl_request plain[];
};

/* Programs have the inline functions compiled in. */
_Static_assert(sizeof(struct tl_batch) == 40 && offsetof(struct tl_batch, requests) == 0 &&
	       offsetof(struct tl_batch, first) == 8 && offsetof(struct tl_batch, next) == 16 &&
	       offsetof(struct tl_batch, end) == 24 &&
	       offsetof(struct tl_batch, program) == 32,
	       "the layout is part of the binary interface");

static struct batch *batch_of(struct tl_batch *batch)
{
	return (struct batch *)(void *)batch;
}

/* All queued calls are complete. The next call takes slot 0, whose cache line is warm. */
static void rewind_slots(struct tl_batch *head)
{
	head->first = head->requests;
	head->next = head->requests;
	head->program = 0;
}

static void set_up_errors(struct tl_request *requests)
{
	for (int error = 1; error <= (int)TL_SLOT_ERRORS; error++)
		requests[-error].result = -error;
}

int tl_batch_create(struct tl_batch **out, unsigned int entries, unsigned int flags)
{
	unsigned int unordered = flags & TL_UNORDERED, places;
	struct tl_setup setup = { .size = sizeof(setup) };
	struct batch *batch;
	size_t bytes;
	void *object;
	int result;

	entries = tl_entries_rounded(entries,
				     unordered ? TL_UNORDERED_ENTRIES_MAX : TL_ENTRIES_MAX);
	if (!entries)
		return -EINVAL;
	places = setup.entries = unordered ? 2 * entries : entries;
	bytes = sizeof(struct batch) + TL_RING_REQUESTS_BYTES((size_t)places);
	result = tl_object_create(&object, bytes + (unordered ? tl_order_bytes(entries) : 0));
	if (result)
		return result;
	batch = object;
	result = tl_backend_open(&batch->backend, tl_header_of(object), &setup,
				 flags ^ unordered);
	if (result) {
		tl_object_destroy(object, true);
		return result;
	}
	batch->fd = tl_header_of(object)->fd;
	batch->head.requests = batch->plain;
	batch->program = &batch->own;
	if (batch->backend == TL_BACKEND_MODULE) {
		batch->head.requests = tl_header_of(object)->ring;
		batch->program = (void *)(batch->head.requests + places);
	}
	if (unordered)
		batch->order = tl_order_make((char *)object + bytes, entries);
	batch->direct = batch->backend == TL_BACKEND_MODULE && !unordered;
	batch->head.end = batch->head.requests + entries;
	set_up_errors(batch->head.requests);
	rewind_slots(&batch->head);
	*out = &batch->head;
	return 0;
}

void tl_batch_destroy(struct tl_batch *batch)
{
	if (batch)
		tl_object_destroy(batch, batch->requests != NULL);
}

enum tl_backend tl_batch_backend(const struct tl_batch *batch)
{
	return ((const struct batch *)(const void *)batch)->backend;
}

/* The caller's data of each slot; the object's block of heap, made when it is first set. */
int tl_batch_set_data(struct tl_batch *head, unsigned int slot, uint64_t user_data)
{
	size_t slots = (size_t)(head->end - head->requests);
	uint64_t *data;

	if (!head->requests)
		return -EPERM;
	if (slot >= tl_batch_next(head) || head->requests + slot < head->first)
		return -EINVAL;
	data = tl_header_of(head)->heap;
	if (!data) {
		data = tl_heap_resize(NULL, slots, sizeof(*data));
		if (!data)
			return -ENOMEM;
		memset(data, 0, slots * sizeof(*data));
		tl_header_of(head)->heap = data;
	}
	data[slot] = user_data;
	return 0;
}

uint64_t tl_batch_data(const struct tl_batch *head, unsigned int slot)
{
	const uint64_t *data = tl_header_of((void *)(uintptr_t)head)->heap;

	return data && slot < (size_t)(head->end - head->requests) ? data[slot] : 0;
}

static bool done(const struct tl_request *request)
{
	/* Pairs with the executor's release: the caller reads the result after this. */
	return __atomic_load_n(&request->state, __ATOMIC_ACQUIRE) == TL_DONE;
}

/* n more requests are complete; in a strict order they are the oldest. */
static int advance(struct tl_batch *head, int n)
{
	if (head->next - head->first == n)
		rewind_slots(head);
	else
		head->first += n;
	return n;
}

/* Makes the calls one by one. A call that a handler interrupted ends the run, as in a batch. */
static int execute_plain(struct batch *batch, struct tl_request *from, struct tl_request *to)
{
	struct tl_request *request = from;

	while (request != to) {
		bool made = tl_plain_execute(request, TL_CALL_BATCH);

		tl_plain_complete(request);
		batch->counts.crossings += made;
		batch->counts.executed += made;
		batch->counts.refused += !made;
		if (request++->result == -EINTR) {
			batch->counts.interrupted++;
			break;
		}
	}
	return (int)(request - from);
}

/* The module has returned and the last of from..to-1 is not complete. Returns how many are now. */
static int complete_some(struct batch *batch, struct tl_request *from, struct tl_request *to,
		      long entered)
{
	struct tl_request *request = from;

	while (request != to && done(request))
		request++;
	if (request == from && entered == -EINTR) {
		/* A handler without SA_RESTART has interrupted the first call. */
		request->result = -EINTR;
		tl_plain_complete(request);
		request++;
	}
	if (request != from)
		return (int)(request - from);
	/*
	 * No request was executed. -EBUSY: the thread is traced or audited, and the tracer must
	 * see every call. Any other answer may be that of a file that has the descriptor now. If it
	 * is not, a count without a complete request comes from a filter that traps lseek(2), and
	 * its handler.
	 */
	if (entered != -EBUSY) {
		int error = tl_ring_check(batch->fd, batch->head.requests);

		if (error || entered < 0)
			return error ? error : (int)entered;
	}
	return execute_plain(batch, from, to);
}

static long enter(const struct batch *batch, const struct tl_request *from,
		  const struct tl_request *to)
{
	return module_enter_batch(batch->fd, from, (uint64_t)(to - from));
}

/* Did the module stop for a reason that plain calls hide, such as a stop signal? */
static bool may_continue(struct batch *batch)
{
	uint32_t stopped = batch->program->stopped;

	batch->program->stopped = TL_STOPPED_NEVER;
	return stopped == TL_STOPPED_PAUSE || stopped == TL_STOPPED_BUSY;
}

/* The same as complete_some(), and goes on unless a handler has run. */
static int complete_short(struct batch *batch, struct tl_request *from, struct tl_request *to,
			  long entered)
{
	struct tl_request *request = from;

	for (;;) {
		int made = complete_some(batch, request, to, entered);

		if (made > 0)
			request += made;
		if (made <= 0 || request == to || !may_continue(batch))
			return request != from ? (int)(request - from) : made;
		entered = enter(batch, request, to);
	}
}

/* Executes the incomplete requests from..to-1. Returns how many are complete then. */
static int execute(struct batch *batch, struct tl_request *from, struct tl_request *to)
{
	long result;

	if (batch->backend == TL_BACKEND_PLAIN)
		return execute_plain(batch, from, to);
	result = enter(batch, from, to);
	return done(to - 1) ? (int)(to - from) : complete_short(batch, from, to, result);
}

/* ---- In any order -------------------------------------------------------------------------- */

/* Copies the results of executed copies to their slots. A jump may leave it; it may run again. */
static void copies_write_back(struct batch *batch)
{
	struct tl_request *requests = batch->head.requests, *copy = batch->head.end;
	struct order *order = batch->order;

	for (uint32_t i = 0; i < order->in_flight; i++, copy++) {
		struct tl_request *request = &requests[ORDER_SLOT(order->words[i])];

		if (!done(copy))
			continue;
		request->result = copy->result;
		__atomic_store_n(&request->state, TL_DONE, __ATOMIC_RELEASE);
	}
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	order->in_flight = 0;
}

static int execute_copies(struct batch *batch, unsigned int n)
{
	struct tl_request *requests = batch->head.requests, *copies = batch->head.end;
	struct order *order = batch->order;
	int result;

	for (unsigned int i = 0; i < n; i++)
		copies[i] = requests[ORDER_SLOT(order->words[i])];
	/* If a handler leaves the flush from here on, the next flush copies the results back. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	order->in_flight = n;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	result = execute(batch, copies, copies + n);
	copies_write_back(batch);
	return result;
}

static int flush_unordered(struct batch *batch)
{
	struct tl_batch *head = &batch->head;
	struct order *order = batch->order;
	unsigned int queued = tl_batch_queued(head), n, first, last;
	int result;
	bool moved;

	copies_write_back(batch);
	n = tl_order_find(order, head->requests, (unsigned int)(head->next - head->requests),
			  &moved);
	if (n != queued) {
		/* A handler has left the last flush by a jump: no request is made twice. */
		result = (int)(queued - n);
	} else {
		first = ORDER_SLOT(order->words[0]);
		last = ORDER_SLOT(order->words[n - 1]);
		result = moved || last - first != n - 1 ? execute_copies(batch, n) :
			 execute(batch, head->requests + first, head->requests + first + n);
	}
	if (result == (int)queued)
		order->barriers_n = 0;
	return result > 0 ? advance(head, result) : result;
}

int tl_batch_barrier(struct tl_batch *head)
{
	struct order *order = batch_of(head)->order;

	if (!head->requests)
		return -EPERM;
	if (order)
		tl_order_barrier(order, (unsigned int)(head->next - head->requests));
	return 0;
}

/* ---- Programs ------------------------------------------------------------------------------ */

/* Executes a program by the module. Returns 0 at its end, or why it stopped. */
static int enter_program(struct batch *batch, uint32_t end)
{
	struct tl_program *program = batch->program;
	struct tl_request *requests = batch->head.requests;
	long entered;

	do {
		program->stopped = TL_STOPPED_NEVER;
		entered = module_enter(batch->fd, requests, end, TL_ENTER_PROGRAM);
	} while (program->stopped == TL_STOPPED_PAUSE);
	/* `stopped` counts: a handler that emulates a call can rewrite the returned value. */
	if (program->stopped == TL_STOPPED_NEVER && entered == -EINTR && program->at < end) {
		/* A handler without SA_RESTART has interrupted the first call. */
		struct tl_request step = requests[program->at];

		tl_program_complete_step(program, requests, end, &step, -EINTR);
		return program->at < end ? -EINTR : 0;
	}
	if (program->stopped == TL_STOPPED_NEVER && entered != -EBUSY) {
		int error = tl_ring_check(batch->fd, requests);

		if (error || entered < 0)
			return error ? error : (int)entered;
	}
	switch (program->stopped) {
	case TL_STOPPED_END:
		return 0;
	case TL_STOPPED_SIGNAL:
		return -EINTR;
	case TL_STOPPED_STEPS:
		return -ETIME;
	default:
		/* A tracer must see every call, or a handler has answered in the module's place. */
		return tl_program_execute(program, requests, end, &batch->counts);
	}
}

/* Calls that were jumped over have a result, too. */
static void cancel_skipped(struct tl_batch *head)
{
	for (struct tl_request *request = head->first; request != head->next; request++) {
		if (done(request))
			continue;
		request->result = -ECANCELED;
		tl_plain_complete(request);
	}
}

static int flush_program(struct batch *batch, uint64_t steps)
{
	struct tl_batch *head = &batch->head;
	struct tl_program *program = batch->program;
	uint32_t end = tl_batch_next(head), queued = tl_batch_queued(head);
	int result;

	if (!(head->program & TL_PROGRAM_BEGUN)) {
		/* A handler has left the last flush by a jump: no request is made twice. */
		while (head->first != head->next && done(head->first))
			head->first++;
		program->at = (uint32_t)(head->first - head->requests);
		/* If a handler leaves the flush from here on, the next one goes on there. */
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		head->program |= TL_PROGRAM_BEGUN;
	}
	program->steps = steps;
	result = batch->backend == TL_BACKEND_PLAIN ?
			 tl_program_execute(program, head->requests, end, &batch->counts) :
			 enter_program(batch, end);
	if (result)
		return result;
	/* If no call was made twice, as many steps as calls mean that no call was jumped over. */
	if (head->program & TL_PROGRAM_LOOPS ||
	    (head->program & TL_PROGRAM_JUMPS && steps - program->steps != queued))
		cancel_skipped(head);
	rewind_slots(head);
	return (int)queued;
}

int tl_batch_jump(struct tl_batch *head, unsigned int slot, enum tl_condition condition,
		  unsigned int target)
{
	struct tl_request *request;

	if (!head->requests)
		return -EPERM;
	if ((int)slot < 0 || (int)target < 0)
		return (int)slot < 0 ? (int)slot : (int)target;
	request = head->requests + slot;
	if (batch_of(head)->order || slot >= tl_batch_next(head) ||
	    target > tl_batch_next(head) || request < head->first)
		return -EINVAL;
	request->nr |= TL_JUMPS;
	request->condition = (uint8_t)condition;
	request->target = (uint16_t)target;
	head->program |= TL_PROGRAM_STEPS | TL_PROGRAM_JUMPS;
	if (target <= slot)
		head->program |= TL_PROGRAM_LOOPS;
	return 0;
}

unsigned int tl_batch_at(const struct tl_batch *head)
{
	const struct batch *batch = (const struct batch *)(const void *)head;

	if (head->program & TL_PROGRAM_BEGUN)
		return batch->program->at;
	return (unsigned int)(head->first - head->requests);
}

/* ---- Flushing ------------------------------------------------------------------------------ */

static __attribute__((noinline)) int flush_indirect(struct batch *batch)
{
	struct tl_batch *head = &batch->head;

	if (batch->order)
		return flush_unordered(batch);
	if (head->program)
		return flush_program(batch, TL_STEPS_DEFAULT);
	return advance(head, done(head->first) ?
				complete_short(batch, head->first, head->next, 0) :
				execute_plain(batch, head->first, head->next));
}

static __attribute__((noinline)) int flush_short(struct batch *batch, long entered)
{
	struct tl_batch *head = &batch->head;
	int result = complete_short(batch, head->first, head->next, entered);

	return result > 0 ? advance(head, result) : result;
}

int tl_batch_flush_steps(struct tl_batch *head, uint64_t steps)
{
	struct batch *batch = batch_of(head);

	return head->program && !batch->order ? flush_program(batch, steps) : tl_batch_flush(head);
}

int tl_batch_flush(struct tl_batch *head)
{
	struct batch *batch = batch_of(head);
	long queued = head->next - head->first;
	long result;

	if (!queued)
		return head->requests ? 0 : -EPERM;
	if (!batch->direct || head->program)
		return flush_indirect(batch);
	/* A handler has left the last flush by a jump: no request is made twice. */
	if (done(head->first))
		return flush_short(batch, 0);
	result = module_enter_batch(batch->fd, head->first, (uint64_t)queued);
	/* The order is strict: when the last request is complete, all are. */
	if (!done(head->next - 1))
		return flush_short(batch, result);
	rewind_slots(head);
	return (int)queued;
}

int tl_batch_get_stats(const struct tl_batch *head, struct tl_stats *stats)
{
	const struct batch *batch = (const struct batch *)(const void *)head;

	if (!head->requests)
		return -EPERM;
	if (batch->backend == TL_BACKEND_PLAIN)
		return tl_stats_copy(stats, &batch->counts);
	return tl_stats_module(batch->fd, head->requests, stats, &batch->counts);
}
