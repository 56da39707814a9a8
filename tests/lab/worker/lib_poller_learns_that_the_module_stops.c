// SPDX-License-Identifier: GPL-2.0-only
/*
 * The module stops at the worst moment for a thread that polls: while tl_psc_next() has found
 * nothing and is about to arm the descriptor. The descriptor tells of it all the same, so that the
 * waiting request is handed over and made. A ring that may not be written holds the thread there.
 */
#include "check.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <trapless.h>

#define ENTRIES 8
#define SILENCE_MS 20000
#define DATA 7
#define RING_BYTES (TL_RING_BYTES(ENTRIES) + TL_RING_COMPLETIONS_BYTES(ENTRIES))

static struct tl_psc *psc;
static char *ring;
static uint64_t sleeps_before;
static int start[2], traced[2], end[2];

static uint64_t sleeps(void)
{
	struct tl_stats stats = { .size = sizeof(stats) };

	CHECK_EQ(tl_psc_get_stats(psc, &stats), 0);
	return stats.sleeps;
}

/* The module refuses a traced thread, which then stops it and serves in user space. */
static void *refused_worker(void *unused)
{
	pid_t tid = (pid_t)syscall(SYS_gettid);
	char byte;

	MUST(write(start[1], &tid, sizeof(tid)));
	MUST(read(traced[0], &byte, 1));
	while (tl_psc_enter(psc) == -EINTR)
		;
	return unused;
}

static void trace(void)
{
	char byte;
	pid_t tid;

	MUST(read(start[0], &tid, sizeof(tid)));
	MUST(ptrace(PTRACE_SEIZE, tid, NULL, NULL));
	MUST(write(traced[1], "t", 1));
	MUST(read(end[0], &byte, 1));
}

/* The requester stores to `armed`, first of all to the ring. Before it does, the module stops. */
static void stop_module(int signal)
{
	pthread_t thread;

	(void)signal;
	MUST(mprotect(ring, RING_BYTES, PROT_READ | PROT_WRITE));
	CHECK_EQ(pthread_create(&thread, NULL, refused_worker, NULL), 0);
	while (sleeps() == sleeps_before)
		sched_yield();
	CHECK_EQ(tl_psc_backend(psc), TL_BACKEND_PLAIN);
}

static char *mapped_ring(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long address = 0;
	char line[256];

	CHECK(maps);
	while (!address && fgets(line, sizeof(line), maps))
		if (strstr(line, "/dev/trapless"))
			address = strtoul(line, NULL, 16);
	fclose(maps);
	CHECK(address);
	return (char *)address;
}

/* One worker of the module is inside a call, and a request waits behind it. */
static void keep_worker_busy(const int *gate)
{
	static struct tl_request chain[2];
	int slot, busy[2];
	static char byte;

	MUST(pipe(busy));
	chain[0] = (struct tl_request){ .nr = SYS_write, .args = { (uint64_t)busy[1],
								   (uintptr_t)"b", 1 } };
	chain[1] = (struct tl_request){ .nr = SYS_read, .args = { (uint64_t)gate[0],
								  (uintptr_t)&byte, 1 } };
	CHECK(tl_psc_add_chain(psc, chain, 2) >= 0);
	CHECK_EQ(tl_psc_notify(psc), 1);
	MUST(read(busy[0], &byte, 1));
	slot = TL_PSC_ADD(psc, SYS_getppid);
	CHECK_EQ(tl_psc_set_data(psc, (unsigned int)slot, DATA), 0);
	CHECK_EQ(tl_psc_notify(psc), 1);
}

int main(void)
{
	struct sigaction action = { .sa_handler = stop_module };
	struct tl_psc_completion completion;
	struct pollfd poll_fd = { .events = POLLIN };
	int gate[2];
	pid_t tracer;

	MUST(pipe(start));
	MUST(pipe(traced));
	MUST(pipe(end));
	MUST(pipe(gate));
	tracer = child_start(trace);
	CHECK_EQ(tl_psc_create(&psc, ENTRIES, 0, TL_MODULE | TL_COMPLETIONS), 0);
	poll_fd.fd = tl_psc_fd(psc);
	CHECK_EQ(tl_psc_start(psc, 1), 0);
	keep_worker_busy(gate);
	sleeps_before = sleeps();

	ring = mapped_ring();
	MUST(sigaction(SIGSEGV, &action, NULL));
	MUST(mprotect(ring, RING_BYTES, PROT_READ));
	CHECK_EQ(tl_psc_backend(psc), TL_BACKEND_MODULE);
	while (tl_psc_next(psc, &completion) != 1)
		if (MUST(poll(&poll_fd, 1, SILENCE_MS)) != 1)
			FAIL("the module has stopped, and the descriptor stays silent");
	CHECK_EQ(completion.user_data, DATA);
	CHECK_EQ(completion.result, getppid());
	CHECK_EQ(tl_psc_backend(psc), TL_BACKEND_PLAIN);

	MUST(write(gate[1], "g", 1));
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	CHECK_EQ(tl_psc_next(psc, &completion), 1);
	CHECK_EQ(completion.result, 1);
	MUST(write(end[1], "e", 1));
	CHECK_EXITED(child_wait(tracer), 0);
	tl_psc_destroy(psc);
	return 0;
}
