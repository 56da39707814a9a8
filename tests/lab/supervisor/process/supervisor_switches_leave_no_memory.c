// SPDX-License-Identifier: GPL-2.0-only
/*
 * Thousands of switches, there and back, by ends and kills of processes and threads, by exec and
 * by requests that fail, leave the kernel with as much memory as before.
 */
#include "memory.h"
#include "supervisor.h"

#define ROUNDS 300
#define WINDOWS 8
#define BODIES 6
#define OBJECTS_MAX (ROUNDS / BODIES / 2)	/* half of what a body leaks that leaks one */

static void back_and_forth(void)
{
	for (int i = 0; i < 5; i++) {
		enter_supervisor(TL_SWITCH_CHILDREN);
		enter_user();
	}
}

static void ends_inside(void)
{
	enter_supervisor(TL_SWITCH_CHILDREN);
	child_wait(child_start(reach_supervisor));
}

static void *thread(void *unused)
{
	sys(SYS_getppid);
	return unused;
}

static void ends_with_threads(void)
{
	pthread_t threads[3];

	enter_supervisor(0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, thread, NULL), 0);
	CHECK_EQ(pthread_join(threads[0], NULL), 0);
}

static void is_killed(void)
{
	enter_supervisor(TL_SWITCH_EXEC);
	raise(SIGKILL);
}

static void executes(void)
{
	enter_supervisor(0);
	exec_stage("end");
}

static void is_refused(void)
{
	struct tl_switch request = { .size = sizeof(request), .mode = 7 };

	CHECK_EQ(switch_ioctl(&request), -EINVAL);
	CHECK_EQ(raw_switch_supervisor(2), -ENOEXEC);
}

static void switch_many(int n)
{
	static void (*const bodies[BODIES])(void) = {
		back_and_forth, ends_inside, ends_with_threads, is_killed, executes, is_refused,
	};

	for (int i = 0; i < n; i++)
		child_run(bodies[i % BODIES]);
}

/* A leak adds to every window; what others do meanwhile, only to some. */
static bool window_is_clean(void)
{
	struct memory before = memory_settled(), after;

	switch_many(ROUNDS);
	after = memory_settled();
	fprintf(stderr, "more than before: %ld objects, %ld address spaces, %ld + %ld KB\n",
		after.objects - before.objects, after.mms - before.mms,
		after.vmalloc_kb - before.vmalloc_kb, after.unexplained_kb - before.unexplained_kb);
	return after.objects - before.objects <= OBJECTS_MAX &&
	       after.mms - before.mms <= ROUNDS / 10 &&
	       after.vmalloc_kb - before.vmalloc_kb <= ROUNDS &&
	       after.unexplained_kb - before.unexplained_kb <= ROUNDS;
}

int main(void)
{
	bool clean = false;

	if (!strcmp(test_stage(), "end"))
		return 0;
	supervisor_need();
	switch_many(ROUNDS / 5);
	CHECK_EQ(supervisor_info().processes, 0);
	if (access("/sys/kernel/debug/kmemleak", F_OK) == 0)
		SKIP("a KASAN kernel keeps what is freed; kmemleak looks for leaks there");
	for (int i = 0; i < WINDOWS && !clean; i++)
		clean = window_is_clean();
	CHECK_EQ(supervisor_info().processes, 0);
	CHECK(clean);
	return 0;
}
