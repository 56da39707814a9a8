// SPDX-License-Identifier: GPL-2.0-only
/*
 * An object belongs to the process that made it. In the child of a fork, whichever way it was
 * forked, its functions answer -EPERM or -EAGAIN, destroying it is safe, and the parent's object
 * goes on as if nothing had happened.
 */
#include "lib_check.h"

static struct tl_batch *batch;
static struct tl_sched *sched;
static struct tl_psc *psc;

static void fork_in_thread(struct tl_thread *self, void *arg)
{
	(void)self;
	*(pid_t *)arg = fork();
}

/* The child of a fork in one of the scheduler's threads: the run that it is in ends. */
static void fork_within_a_run(void)
{
	struct tl_sched *own = sched_new(32, 0, 0);
	pid_t pid = -1;
	int result;

	CHECK_EQ(tl_thread_create(own, NULL, fork_in_thread, &pid, 0), 0);
	result = tl_sched_run(own);
	if (!pid) {
		CHECK_EQ(result, -EPERM);
		_exit(0);
	}
	CHECK_EQ(result, 0);
	CHECK_EXITED(child_wait(pid), 0);
	tl_sched_destroy(own);
}

static void child(void)
{
	struct tl_stats stats = { .size = sizeof(stats) };
	struct tl_sched_stats sched_counts = { .size = sizeof(sched_counts) };
	int64_t result;

	CHECK_EQ(TL_ADD(batch, SYS_getpid), -EAGAIN);
	CHECK_EQ(tl_batch_queued(batch), 0);
	CHECK_EQ(tl_batch_flush(batch), -EPERM);
	CHECK_EQ(tl_batch_flush_all(batch), -EPERM);
	CHECK_EQ(tl_batch_barrier(batch), -EPERM);
	CHECK_EQ(tl_batch_jump(batch, 0, TL_IF_ALWAYS, 0), -EPERM);
	CHECK_EQ(tl_batch_next(batch), 0);
	CHECK_EQ(tl_batch_at(batch), 0);
	CHECK(!tl_batch_done(batch, 0));
	CHECK_EQ(tl_batch_get_stats(batch, &stats), -EPERM);
	CHECK(strstr(tl_batch_reason(batch), "fork"));
	tl_batch_destroy(batch);

	CHECK_EQ(TL_CALL(sched, NULL, NULL, SYS_getpid), -EPERM);
	CHECK_EQ(tl_sched_jump(sched, 0, TL_IF_ALWAYS, 0), -EPERM);
	CHECK_EQ(tl_sched_run(sched), -EPERM);
	CHECK_EQ(tl_sched_get_stats(sched, &sched_counts), -EPERM);
	tl_sched_destroy(sched);

	CHECK_EQ(TL_PSC_ADD(psc, SYS_getpid), -EAGAIN);
	CHECK_EQ(tl_psc_notify(psc), -EPERM);
	CHECK_EQ(tl_psc_wait(psc, 0), -EPERM);
	CHECK_EQ(tl_psc_enter(psc), -EPERM);
	CHECK_EQ(tl_psc_start(psc, 1), -EPERM);
	CHECK_EQ(tl_psc_result(psc, 0, &result), -EPERM);
	CHECK_EQ(tl_psc_get_stats(psc, &stats), -EPERM);
	tl_psc_destroy(psc);

	/* A child makes objects of its own. */
	batch = batch_new(8);
	CHECK_EQ(TL_ADD(batch, SYS_getpid), 0);
	CHECK_EQ(tl_batch_flush(batch), 1);
	CHECK_EQ(tl_batch_result(batch, 0), getpid());
	tl_batch_destroy(batch);
}

int main(void)
{
	int64_t result = 0;
	int slot, psc_slot;
	pid_t raw;

	batch = batch_new(8);
	sched = sched_new(32, 0, 0);
	psc = psc_new(8, 0, 2);
	slot = TL_ADD(batch, SYS_getpid);
	CHECK_EQ(TL_CALL(sched, NULL, &result, SYS_getpid), 0);
	psc_slot = TL_PSC_ADD(psc, SYS_getpid);

	CHECK_EXITED(child_run(child), 0);
	raw = (pid_t)sys(SYS_clone, SIGCHLD);	/* no handler of pthread_atfork() runs */
	if (!raw) {
		child();
		_exit(0);
	}
	CHECK_EXITED(child_wait(raw), 0);
	fork_within_a_run();

	CHECK_EQ(tl_batch_flush(batch), 1);
	CHECK_EQ(tl_batch_result(batch, (unsigned int)slot), getpid());
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(result, getpid());
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	result = 0;
	CHECK_EQ(tl_psc_result(psc, (unsigned int)psc_slot, &result), 1);
	CHECK_EQ(result, getpid());
	tl_batch_destroy(batch);
	tl_sched_destroy(sched);
	tl_psc_destroy(psc);
	return 0;
}
