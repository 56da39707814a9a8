// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Batches with TL_UNORDERED. This file owns where their requests are executed: the ring has twice
 * as many places as the caller has slots. Requests that are in order already are executed in place.
 * All others are copied in order (order.c) to the places behind the slots and executed there, and
 * their results are copied back. So a slot always belongs to its call, and a signal handler may
 * leave a flush by a jump at any point.
 */
#include "batch_state.h"
#include "order.h"

#include <errno.h>

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
	result = tl_batch_execute(batch, copies, copies + n);
	copies_write_back(batch);
	return result;
}

int tl_batch_flush_unordered(struct batch *batch)
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
			 tl_batch_execute(batch, head->requests + first,
					  head->requests + first + n);
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
