// SPDX-License-Identifier: GPL-2.0-only
/*
 * The batch executor. Owns order, partial completion and restart; how one call is made is
 * request.h's.
 */
#include "ring/batch.h"
#include "ring/request.h"

/*
 * Makes the requests from..to-1 and returns where it stopped. The loop is what a call costs, so
 * it is kept short: everything unusual is out of line.
 */
static __always_inline struct tl_request *execute(struct tlk_stay *stay, struct pt_regs *regs,
						  struct tl_request *from, struct tl_request *to,
						  bool first, long *stopped)
{
	struct tl_request *request;
	long result;

	for (request = from; request != to; request++) {
		tlk_request_copy(request, regs);
		if (tlk_work_pending()) {
			result = tlk_request_make_slow(stay, first && request == from);
			if (stay->ending != TLK_DONE)
				goto stop;
		} else {
			result = tlk_request_call(regs, &tlk_batch_calls);
		}
		if (tlk_result_is_special(result)) {
			result = tlk_request_settle(stay, result);
			if (stay->ending != TLK_DONE)
				goto stop;
		}
		tlk_request_complete(request, result);
	}
	return request;
stop:
	*stopped = result;
	return request;
}

/* The part of a batch that wraps around the ring's end. Returns how many it made. */
static noinline unsigned int execute_wrapped(struct tlk_stay *stay, struct tlk_ring *ring,
					     unsigned int count, bool first, long *stopped)
{
	struct tl_request *from = ring->requests;

	return execute(stay, current_pt_regs(), from, from + count, first, stopped) - from;
}

static noinline void count_unusual(struct tlk_counts *counts, const struct tlk_stay *stay)
{
	atomic64_add(stay->refused, &counts->refused);
	if (stay->ending == TLK_BUSY)
		atomic64_inc(&counts->bypassed);
	else if (stay->ending != TLK_DONE)
		atomic64_inc(&counts->interrupted);
}

/*
 * What the door returns when its first request stopped it is what that call returned: the kernel
 * then restarts the door as it would have restarted the call.
 */
long tlk_batch_run(struct tlk_ring *ring, struct file *file, unsigned long argument)
{
	unsigned int entries = ring->mask + 1;
	unsigned int first = argument & 0xffff;
	unsigned int asked = argument >> 16;
	unsigned int straight = min(asked, entries - first);
	/* Speculation stays in the ring even where the check of `first` is mispredicted. */
	struct tl_request *from = &ring->requests[first & ring->mask];
	struct pt_regs *regs = current_pt_regs();
	struct tlk_stay stay tlk_uninitialized;
	struct tlk_door door;
	unsigned int done;
	long stopped = 0;

	if (unlikely(argument >> 32 || first >= entries || asked > entries))
		return -EINVAL;
	door = tlk_stay_begin(&stay, file, regs, &tlk_batch_calls, NULL);
	done = execute(&stay, regs, from, from + straight, true, &stopped) - from;
	if (unlikely(straight != asked && done == straight))
		done += execute_wrapped(&stay, ring, asked - straight, !done, &stopped);

	atomic64_inc(&ring->counts.crossings);
	atomic64_add(done - stay.refused, &ring->counts.executed);
	if (unlikely(done != asked || stay.refused))
		count_unusual(&ring->counts, &stay);
	tlk_stay_end(&stay, regs, door);
	return done ? done : stopped;
}
