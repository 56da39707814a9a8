/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The attack: a tracer attaches while a filter judges a request, so that the batch was not refused
 * for it. Then it has the thread stop in the middle of the verdict, which makes the kernel run the
 * thread's work; and the thread ends by that verdict all the same: because the tracer has made a
 * forbidden call of the request, or because the stop was for the end itself. The batch's references
 * must be put. Long filters make sure that the tracer comes in time.
 */
#include <sys/ptrace.h>
#include <sys/user.h>

#include "filter.h"
#include "module.h"
#include "ring.h"

#define TIMES 3		/* that each attack comes in time */
#define TRIALS_MS 60000	/* of them; it comes seldom where everything but a filter is slow */
#define LONG_FILTERS 6
#define LONG_FILTER 4000	/* instructions */
#define REQUESTED 0xba7c	/* an argument, by which the tracer knows a request */

struct shared {
	volatile pid_t tid;
	volatile char judged;	/* 0: the forbidden request is the next one */
	int options;		/* of the tracer */
};

static struct shared *shared;

/* A filter that takes its time and allows all. Its first instruction keeps it out of caches. */
static void filter_slowly(void)
{
	static struct sock_filter code[LONG_FILTER];
	struct sock_fprog program = { LONG_FILTER, code };

	for (int i = 0; i < LONG_FILTER - 1; i++)
		code[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						       offsetof(struct seccomp_data, args[0]));
	code[LONG_FILTER - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	for (int i = 0; i < LONG_FILTERS; i++)
		CHECK_EQ(sys(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), 0);
}

static void *batcher(void *arg)
{
	struct ring ring = ring_open(4);
	int zero = MUST(open("/dev/zero", O_RDONLY));

	(void)arg;
	filter_call(SYS_getpgid, SECCOMP_RET_KILL_THREAD);
	filter_call(SYS_getppid, SECCOMP_RET_TRACE);
	filter_slowly();
	shared->tid = (pid_t)sys(SYS_gettid);
	for (;;) {
		if (shared->options & PTRACE_O_TRACEEXIT) {
			ring_put(&ring, 0, SYS_read, zero, &shared->judged, 1);
			ring_put(&ring, 1, SYS_getpgid, REQUESTED);
		} else {
			ring_put(&ring, 0, SYS_getppid, REQUESTED);
			ring_put(&ring, 1, SYS_getppid, REQUESTED);
		}
		if (ring_batch(&ring, 0, 2) == 2)
			continue;
		sys(SYS_getpgid, 0);
		FAIL("survived a call that the filter forbids");
	}
	return NULL;
}

static void die_in_batch(void)
{
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, batcher, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

/* Lets the traced thread go on to its end. Returns whether it stopped in a request. */
static bool end_traced(pid_t tid)
{
	bool in_request = false;
	int status;

	while (waitpid(tid, &status, __WALL) == tid && WIFSTOPPED(status)) {
		struct user_regs_struct registers;

		if (status >> 16 == PTRACE_EVENT_SECCOMP || status >> 16 == PTRACE_EVENT_EXIT) {
			MUST(ptrace(PTRACE_GETREGS, tid, NULL, &registers));
			in_request |= registers.rdi == REQUESTED;
			registers.orig_rax = SYS_getpgid;
			MUST(ptrace(PTRACE_SETREGS, tid, NULL, &registers));
		}
		MUST(ptrace(PTRACE_CONT, tid, NULL, NULL));
	}
	return in_request;
}

static bool attack(int options)
{
	bool in_request;
	pid_t pid;

	shared->tid = 0;
	shared->judged = 1;
	shared->options = options;
	pid = child_start(die_in_batch);
	while (!shared->tid)
		sched_yield();
	while (options & PTRACE_O_TRACEEXIT && shared->judged)
		;
	if (ptrace(PTRACE_SEIZE, shared->tid, NULL, options)) {
		CHECK_EXITED(child_wait(pid), 0);	/* it was over by then */
		return false;
	}
	in_request = end_traced(shared->tid);
	CHECK_EXITED(child_wait(pid), 0);
	return in_request;
}

int main(void)
{
	int before = module_references(), in_verdict = 0, at_end = 0;

	shared = shared_memory(sizeof(*shared));
	for (uint64_t end = now_ms() + TRIALS_MS; now_ms() < end;) {
		if (in_verdict >= TIMES && at_end >= TIMES)
			break;
		if (in_verdict < TIMES)
			in_verdict += attack(PTRACE_O_TRACESECCOMP);
		if (at_end < TIMES)
			at_end += attack(PTRACE_O_TRACEEXIT);
	}
	module_references_fall_to(before);
	if (!in_verdict || !at_end)
		SKIP("the tracer came in time %d and %d times", in_verdict, at_end);
	return 0;
}
