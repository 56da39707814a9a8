// SPDX-License-Identifier: GPL-2.0-only
/*
 * What would read or change the worker's own thread is refused on workers and allowed in one's
 * own batch; what is refused everywhere is refused here too. The known ones are in the table. A
 * value that means the own thread is calls_of_workers_mean_the_worker's.
 */
#include "calls.h"
#include "ring.h"

static const uint32_t thread_local_calls[] = {
	SYS_arch_prctl, SYS_set_tid_address, SYS_rt_sigprocmask, SYS_setuid, SYS_setgid,
	SYS_setresuid, SYS_setresgid, SYS_setgroups, SYS_setfsuid, SYS_setfsgid, SYS_capset,
	SYS_unshare, SYS_setns, SYS_set_robust_list, SYS_rt_sigtimedwait, SYS_pause,
};

int main(void)
{
	struct ring ring = worker_ring_open(4);
	struct worker worker = { 0 };
	unsigned int asked = 0;

	for (size_t i = 0; i < sizeof(thread_local_calls) / sizeof(uint32_t); i++) {
		const struct call *call = call_find(thread_local_calls[i]);

		if (call && call->class == CALL_ANY)
			FAIL("%s may be made by workers according to the table", call->name);
	}
	worker_start(&worker, &ring);
	for (size_t i = 0; i < CALLS_COUNT; i++) {
		long result;

		if (calls[i].class == CALL_ANY || calls[i].class == CALL_SELF_VALUE)
			continue;
		ring_queue(&ring, 0, calls[i].nr, -1, -1, -1, -1, -1, -1);
		CHECK_EQ(ring_wait(&ring, 1, 0), 0);
		CHECK_EQ(ring_state(&ring, 0), TL_DONE);
		result = ring_result(&ring, 0);
		asked++;
		if (result != -EOPNOTSUPP && (result != -ENOSYS || calls[i].nr < 335))
			FAIL("%s on a worker: %ld, expected -EOPNOTSUPP", calls[i].name, result);
	}
	CHECK_EQ(ring_stats(&ring).refused, asked);
	CHECK_EQ(ring_stats(&ring).executed, 0);
	workers_end(&ring, &worker, 1);
	return 0;
}
