// SPDX-License-Identifier: GPL-2.0-only
/*
 * The batch executor. Owns order, partial completion and restart; how one call is made is
 * request.h's.
 */
#include "batch.h"
#include "request.h"

/* What a plain call would do with this result at its return to user mode. True: it is final. */
static noinline bool settle_restart(long *result)
{
	if (tlk_result_is_redone(*result))
		return false;
	*result = -EINTR;
	return true;
}

/*
 * Returns how many requests are complete, and in *stopped what the next one met: 0, -EBUSY or the
 * restart code of its call. The loop is what a call costs: keep it short.
 */
static unsigned int execute(struct tlk_stay *stay, struct tlk_ring *ring, unsigned int first,
			    unsigned int count, long *stopped)
{
	struct tl_request *request = &ring->requests[first];
	struct tl_request *const last = &ring->requests[ring->mask];
	unsigned int done;
	long result;

	*stopped = 0;
	for (done = 0; done < count; done++) {
		tlk_request_copy(request, stay->regs);
		if (tlk_work_pending()) {
			enum tlk_ending ending = tlk_request_make_slow(stay, done == 0, &result);

			if (ending != TLK_DONE) {
				*stopped = ending == TLK_BUSY ? -EBUSY : 0;
				break;
			}
		} else {
			result = tlk_request_call(stay, &tlk_batch_calls);
		}
		if (tlk_result_is_restart(result) && !settle_restart(&result)) {
			*stopped = result;
			break;
		}
		tlk_request_complete(request, result);
		request = request == last ? ring->requests : request + 1;
	}
	return done;
}

long tlk_batch_run(struct tlk_ring *ring, struct file *file, unsigned long argument)
{
	unsigned int first = argument & 0xffff;
	unsigned int count = argument >> 16 & 0xffff;
	struct tlk_stay stay;
	unsigned int done;
	long stopped;

	if (argument >> 32 || first > ring->mask || count > ring->mask + 1)
		return -EINVAL;
	tlk_stay_begin(&stay, file, &tlk_batch_calls);
	done = execute(&stay, ring, first, count, &stopped);
	atomic64_inc(&ring->counts.crossings);
	atomic64_add(done - stay.refused, &ring->counts.executed);
	if (unlikely(stay.refused))
		atomic64_add(stay.refused, &ring->counts.refused);
	if (unlikely(done < count))
		atomic64_inc(stopped == -EBUSY ? &ring->counts.bypassed :
						 &ring->counts.interrupted);
	tlk_stay_end(&stay);
	return done ? done : stopped;
}
