// SPDX-License-Identifier: GPL-2.0-only
/*
 * The module cannot be unloaded while a process is in supervisor mode, or about to be; once all
 * are back or gone it can, though they were running in it a moment before. Loaded, used by several
 * threads and unloaded many times, it leaves no trace.
 */
#include "supervisor.h"

#define MODULE_FILE "/trapless.ko"
#define CYCLES 60		/* TL_CYCLES overrides */
#define THREADS 3

static volatile bool *hold;

static long unload(void)
{
	return sys(SYS_delete_module, "trapless", O_NONBLOCK);
}

static void load(void)
{
	uint64_t deadline = now_ms() + WAIT_MS;
	int fd = MUST(open(MODULE_FILE, O_RDONLY));

	CHECK_EQ(sys(SYS_finit_module, fd, "supervisor=1", 0), 0);
	close(fd);
	while (access(TL_DEVICE, F_OK) < 0) {
		CHECK(now_ms() < deadline);
		sleep_ms(1);
	}
}

static void *call_on(void *unused)
{
	(void)unused;
	while (*hold)
		sys(SYS_getppid);
	return NULL;
}

/* Switches itself and closes the device: what holds the module now is the switch alone. */
static void use(void)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, call_on, NULL), 0);
	enter_supervisor(0);
	CHECK_EQ(sys(SYS_close, supervisor_fd()), 0);
	call_on(NULL);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

static int references(void)
{
	char text[32];

	CHECK(read_file("/sys/module/trapless/refcnt", text, sizeof(text)) > 0);
	return atoi(text);
}

/* The last reference may be dropped a moment after its process has ended. */
static void unload_soon(void)
{
	uint64_t deadline = now_ms() + WAIT_MS;
	long result;

	while ((result = unload()) == -EAGAIN && now_ms() < deadline)
		sched_yield();
	CHECK_EQ(result, 0);
}

int main(void)
{
	int cycles;

	if (access(MODULE_FILE, R_OK) < 0)
		SKIP("%s is not in this guest: the module could not be loaded again", MODULE_FILE);
	CHECK_EXITED(child_run(supervisor_need), 0);
	cycles = getenv("TL_CYCLES") ? atoi(getenv("TL_CYCLES")) : CYCLES;
	hold = shared_memory(sizeof(*hold));
	for (int cycle = 0; cycle < cycles; cycle++) {
		pid_t pid;

		*hold = true;
		pid = child_start(use);
		while (references() <= THREADS)
			sched_yield();
		CHECK_EQ(unload(), -EAGAIN);
		if (cycle % 3 == 0)
			MUST(kill(pid, SIGKILL));
		*hold = false;
		if (cycle % 2)
			child_wait(pid);
		unload_soon();
		if (cycle % 2 == 0)
			child_wait(pid);
		CHECK(access("/sys/module/trapless", F_OK) < 0);
		load();
	}
	return 0;
}
