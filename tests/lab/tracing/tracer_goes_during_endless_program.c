// SPDX-License-Identifier: GPL-2.0-only
/*
 * The attack: a program without end, alone on its CPU, made by its own thread or by a worker. Who
 * takes a function tracer away, or live patches, waits until every thread has slept or was in user
 * mode since (RCU tasks). A kernel that preempts its own code does not count that as sleep, so the
 * module must say between two steps that nobody need wait for it.
 */
#include <sys/mount.h>
#include <sys/stat.h>

#include "ring.h"

#define PREEMPTION "/sys/kernel/debug/sched/preempt"
#define TRACEFS "/sys/kernel/tracing"
#define INSTANCE TRACEFS "/instances/endless"

static uint64_t *rounds;

static struct tl_request step_without_end(void)
{
	return (struct tl_request){
		.nr = TL_NR_INCREASE | TL_JUMPS, .state = TL_SUBMITTED,
		.condition = TL_IF_ALWAYS, .target = 0, .args = { (uintptr_t)rounds, 1 },
	};
}

static void run_program(void)
{
	struct ring ring = ring_open(4);
	struct tl_program *program = (void *)(ring.requests + ring.entries);

	pin_to_cpu(1);
	ring.requests[0] = step_without_end();
	*program = (struct tl_program){ .steps = UINT64_MAX };
	enter(&ring, 1, TL_ENTER_PROGRAM);
}

static void run_worker(void)
{
	struct ring ring = worker_ring_open(4);
	struct tl_request step = step_without_end();

	pin_to_cpu(1);
	ring_queue(&ring, 0, TL_NR_PROGRAM, &step, 1, UINT64_MAX);
	CHECK_EQ(ring_notify(&ring, 1), 1);
	ring_ioctl(&ring, TL_IOC_ENTER);
}

static void trace_once(void)
{
	CHECK(write_file(INSTANCE "/current_tracer", "function") > 0);
	CHECK(write_file(INSTANCE "/current_tracer", "nop") > 0);
}

static bool has_ended(pid_t pid)
{
	siginfo_t end = { 0 };

	MUST(waitid(P_PID, (id_t)pid, &end, WEXITED | WNOHANG | WNOWAIT));
	return end.si_pid == pid;
}

static void check_tracer_goes(void (*body)(void))
{
	pid_t endless, tracer;

	*rounds = 0;
	endless = child_start(body);
	WAIT_UNTIL(__atomic_load_n(rounds, __ATOMIC_RELAXED) > 1000, "nothing runs");
	tracer = child_start(trace_once);
	WAIT_UNTIL(has_ended(tracer), "the tracer waits for the program");
	CHECK_EXITED(child_wait(tracer), 0);
	CHECK_EQ(waitpid(endless, NULL, WNOHANG), 0);
	MUST(kill(endless, SIGKILL));
	CHECK_KILLED(child_wait(endless), SIGKILL);
}

/* Kernels that can change it say in brackets how they preempt. */
static void preempt_fully(char *before, size_t size)
{
	char text[128];

	if (access(PREEMPTION, W_OK) < 0)
		mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	if (read_file(PREEMPTION, text, sizeof(text)) <= 0 || !strchr(text, '('))
		SKIP("cannot choose how this kernel preempts");
	snprintf(before, size, "%.*s", (int)strcspn(strchr(text, '(') + 1, ")"),
		 strchr(text, '(') + 1);
	if (write_file(PREEMPTION, "full") < 0)
		SKIP("this kernel cannot preempt its own code");
}

int main(void)
{
	char before[64];

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP("one CPU: the program is not alone on it");
	rounds = shared_memory(4096);
	if (access(TRACEFS "/instances", W_OK) < 0)
		mount("tracefs", TRACEFS, "tracefs", 0, NULL);
	if (mkdir(INSTANCE, 0700) < 0)
		SKIP("no instance of a tracer: %s", strerror(errno));
	if (write_file(INSTANCE "/set_ftrace_filter", "hrtimer_nanosleep") < 0)
		SKIP("no tracer of functions");
	preempt_fully(before, sizeof(before));
	check_tracer_goes(run_program);
	check_tracer_goes(run_worker);
	CHECK(write_file(PREEMPTION, before) > 0);
	MUST(rmdir(INSTANCE));
	return 0;
}
