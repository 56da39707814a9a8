// SPDX-License-Identifier: GPL-2.0-only
/*
 * A filter judges each step of a program as the call it is, with the arguments that were taken for
 * it: at each turn of a loop, whichever action it has, and from the next step on when another
 * thread installs it. That holds for a program that a thread makes itself and for one that a worker
 * makes. The steps make umask(), whose results tell which of the calls before were made.
 */
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "filter.h"
#include "ring.h"

#define TURNS 4u
#define BYTES "xxxx"		/* one a turn */
#define STEPS 6u
#define ENTRIES 8u
#define BUDGET 100
#define JUDGED 2u		/* the argument, and so the turn, that a filter may be about */
#define MASK 027
#define UNTOUCHED 0x5eed

/* What the loop keeps, in memory that is left when its process is killed. */
static struct {
	uint64_t turn;
	uint64_t passed;	/* turns whose umask() has not failed */
	uint64_t place;		/* address in results[] of the next */
	int64_t results[TURNS];	/* of umask() */
} *kept;

static bool by_worker;		/* makes the program; or else the thread itself does */
static uint32_t judged;		/* JUDGED, or FILTER_ANY_ARGUMENT */
static struct ring ring, steps;	/* the program lies in steps.requests */
static struct tl_program *program;
static struct tl_request memory[ENTRIES];
static int pipe_fd[2];
static char byte;
static volatile unsigned int traps;

static bool is_judged(unsigned int turn)
{
	return judged == FILTER_ANY_ARGUMENT || turn == judged;
}

static unsigned int first_judged(void)
{
	return judged == FILTER_ANY_ARGUMENT ? 0 : judged;
}

static int filter(uint32_t action, unsigned int flags)
{
	return filter_install(SYS_umask, judged, action, flags);
}

static void open_ring(void)
{
	ring = by_worker ? worker_ring_open(ENTRIES) : ring_open(ENTRIES);
	program = (void *)(ring.requests + ENTRIES);
	steps = ring;
	if (by_worker)
		steps.requests = memory;
	umask(MASK);
}

static void put_jump(unsigned int slot, uint8_t condition, uint16_t target)
{
	steps.requests[slot].nr |= TL_JUMPS;
	steps.requests[slot].condition = condition;
	steps.requests[slot].target = target;
}

/* Each turn keeps the result of umask() and reads a byte, of which `bytes` are there. */
static void put_loop(size_t bytes)
{
	open_ring();
	MUST(pipe(pipe_fd));
	MUST(write(pipe_fd[1], BYTES, bytes));
	kept->place = (uintptr_t)kept->results;
	ring_put(&steps, 0, SYS_umask | TL_WORD64(0), &kept->turn);
	put_jump(0, TL_IF_ERROR, 2);
	ring_put(&steps, 1, TL_NR_INCREASE, &kept->passed, 1);
	ring_put(&steps, 2, TL_NR_STORE | TL_WORD64(0) | TL_WORD64(1), &kept->place,
		 &steps.requests[0].result);
	ring_put(&steps, 3, TL_NR_INCREASE, &kept->place, sizeof(kept->results[0]));
	ring_put(&steps, 4, SYS_read, pipe_fd[0], &byte, 1);
	ring_put(&steps, 5, TL_NR_INCREASE, &kept->turn, 1, TURNS);
	put_jump(5, TL_IF_SHORT, 0);
}

/* Tells the worker, or the thread that is to enter, of a program of n steps. */
static void submit(unsigned int n, unsigned int flags)
{
	if (by_worker)
		ring_queue(&ring, 0, TL_NR_PROGRAM, steps.requests, n, BUDGET, flags);
	else
		*program = (struct tl_program){ .steps = BUDGET };
}

/* Makes the program to its end, however often a signal stops it. */
static void make(unsigned int n, unsigned int flags)
{
	struct worker worker = { .signals = true, .again = true };

	submit(n, flags);
	if (by_worker) {
		worker_start(&worker, &ring);	/* threads inherit filters */
		CHECK_EQ(ring_wait(&ring, 1, 0), 0);
		workers_end(&ring, &worker, 1);
		return;
	}
	do
		CHECK(enter(&ring, n, TL_ENTER_PROGRAM) > 0);
	while (program->stopped == TL_STOPPED_SIGNAL);
	CHECK_EQ(program->stopped, TL_STOPPED_END);
}

/*
 * The filter has come before turn `from` and gave `answer` to what it is about; the loop came to
 * the umask() of turn `end`. Returns the mask that is left.
 */
static long check_results(unsigned int from, long answer, unsigned int end)
{
	unsigned int passed = 0;
	long mask = MASK;

	for (unsigned int turn = 0; turn < end; turn++) {
		bool answered = turn >= from && is_judged(turn);

		if (kept->results[turn] != (answered ? answer : mask))
			FAIL("umask() of turn %u is %lld, expected %ld", turn,
			     (long long)kept->results[turn], answered ? answer : mask);
		passed += kept->results[turn] >= 0;
		if (!answered)
			mask = turn;
	}
	for (unsigned int turn = end; turn < TURNS; turn++)
		CHECK_EQ(kept->results[turn], UNTOUCHED);
	CHECK_EQ(kept->passed, passed);
	CHECK_EQ(kept->turn, end);
	return mask;
}

/* From /proc, for the filter is about umask() itself. */
static void check_mask(long mask)
{
	char text[4096], *line;

	CHECK(read_file("/proc/self/status", text, sizeof(text)) > 0);
	line = strstr(text, "Umask:");
	CHECK(line);
	CHECK_EQ(strtol(line + strlen("Umask:"), NULL, 8), mask);
}

static void check_loop(unsigned int from, long answer)
{
	check_mask(check_results(from, answer, TURNS));
	if (by_worker)
		CHECK_DONE(&ring, 0, TURNS);
	CHECK_EQ(ring_stats(&ring).interrupted, traps);
}

static void errno_is_result(void)
{
	put_loop(TURNS);
	filter(SECCOMP_RET_ERRNO | EACCES, 0);
	make(STEPS, 0);
	check_loop(0, -EACCES);
}

/* The next step waits for the handler. */
static void on_trap(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	traps++;
	CHECK_EQ(info->si_syscall, SYS_umask);
	CHECK_EQ(info->si_arch, FILTER_ARCH);
	CHECK_EQ(kept->results[kept->turn], UNTOUCHED);
	if (!by_worker)
		CHECK_EQ(program->at, 2);
}

static void trap_stops(void)
{
	struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };

	MUST(sigaction(SIGSYS, &action, NULL));
	put_loop(TURNS);
	filter(SECCOMP_RET_TRAP, 0);
	make(STEPS, 0);
	check_loop(0, -ENOSYS);
	CHECK_EQ(traps, judged == FILTER_ANY_ARGUMENT ? TURNS : 1);
}

static void *supervise(void *listener)
{
	struct seccomp_notif_resp answer;
	struct seccomp_notif call;

	for (;;) {
		memset(&call, 0, sizeof(call));
		MUST(ioctl(*(int *)listener, SECCOMP_IOCTL_NOTIF_RECV, &call));
		CHECK_EQ(call.data.nr, SYS_umask);
		CHECK_EQ(call.data.args[0], kept->turn);
		memset(&answer, 0, sizeof(answer));
		answer.id = call.id;
		answer.val = 4242;
		MUST(ioctl(*(int *)listener, SECCOMP_IOCTL_NOTIF_SEND, &answer));
	}
	return NULL;
}

static void listener_answers(void)
{
	pthread_t thread;
	int listener;

	put_loop(TURNS);
	listener = filter(SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER);
	CHECK_EQ(pthread_create(&thread, NULL, supervise, &listener), 0);
	make(STEPS, 0);
	check_loop(0, 4242);
}

/* Waits until the loop sleeps in the read of its first turn, and gives all threads the filter. */
static void filter_in_first_turn(pid_t tid)
{
	WAIT_UNTIL(__atomic_load_n(&kept->results[0], __ATOMIC_ACQUIRE) != UNTOUCHED,
		   "the loop has not come to its first read");
	wait_asleep(tid);
	filter(SECCOMP_RET_ERRNO | EACCES, SECCOMP_FILTER_FLAG_TSYNC);
	CHECK_EQ(write(pipe_fd[1], BYTES, TURNS), TURNS);
}

static void another_thread_filters(void)
{
	struct worker worker = { 0 };
	struct caller caller;
	long made;

	put_loop(0);
	submit(STEPS, 0);
	if (by_worker) {
		worker_start(&worker, &ring);
		CHECK_EQ(ring_notify(&ring, 1), 1);
		filter_in_first_turn(worker.tid);
		/* It has come for a requester without this filter, so it leaves. */
		worker_join(&worker);
		CHECK_EQ(worker.result, -EPERM);
		CHECK_EQ(ring_state(&ring, 0), TL_RUNNING);
		CHECK_EQ(ring.requests[0].args[4], 5);
		CHECK_EQ(ring_notify(&ring, 0), 0);
		worker_start(&worker, &ring);
		CHECK_EQ(ring_wait(&ring, 0, 0), 0);
		workers_end(&ring, &worker, 1);
	} else {
		caller_start(&caller, &ring, STEPS, TL_ENTER_PROGRAM);
		filter_in_first_turn(caller.tid);
		made = caller_join(&caller);
		CHECK_EQ(made, BUDGET - program->steps);
		CHECK_EQ(program->stopped, TL_STOPPED_END);
	}
	check_loop(1, -EACCES);
}

static void killed_by(uint32_t action)
{
	put_loop(TURNS);
	filter(action, 0);
	make(STEPS, 0);
	FAIL("survived");
}

static void kill_process(void)
{
	killed_by(SECCOMP_RET_KILL_PROCESS);
}

/* The only thread of a process. */
static void kill_only_thread(void)
{
	killed_by(SECCOMP_RET_KILL_THREAD);
}

static void kill_spares_others(void)
{
	struct caller caller = { .ring = &ring, .argument = STEPS, .kind = TL_ENTER_PROGRAM };
	struct worker victim = { 0 }, other = { 0 };

	put_loop(TURNS);
	filter(SECCOMP_RET_KILL_THREAD, 0);
	submit(STEPS, 0);
	if (by_worker) {
		worker_start(&victim, &ring);
		CHECK_EQ(ring_wait(&ring, 1, 0), 0);
		CHECK_DONE(&ring, 0, -ENOSYS);
		wait_thread_end(victim.tid);
		worker_start(&other, &ring);
		ring_queue(&ring, 1, SYS_getpid);
		CHECK_EQ(ring_wait(&ring, 1, 0), 0);
		CHECK_DONE(&ring, 1, getpid());
		workers_end(&ring, &other, 1);
	} else {
		CHECK_EQ(pthread_create(&caller.thread, NULL, caller_main, &caller), 0);
		while (!__atomic_load_n(&caller.tid, __ATOMIC_ACQUIRE))
			sched_yield();
		wait_thread_end(caller.tid);
		CHECK(!caller.returned);
		CHECK_EQ(batch_call(&ring, SYS_getppid), getppid());
	}
	check_mask(check_results(0, 0, first_judged()));
	ring_close(&ring);
}

/* The filter sees what a step takes as argument, and not the slot or address that has it. */
static void taken_argument_is_judged(void)
{
	static uint64_t word, other;

	open_ring();
	ring_put(&steps, 0, TL_NR_STORE, &word, JUDGED);
	ring_put(&steps, 1, SYS_umask | TL_RESULT(0), 0);
	ring_put(&steps, 2, TL_NR_STORE, &other, JUDGED + 1);
	ring_put(&steps, 3, SYS_umask | TL_RESULT(0), 2);
	ring_put(&steps, 4, SYS_umask | TL_WORD32(0), &word);
	ring_put(&steps, 5, SYS_umask | TL_RESULT(0), 4);
	filter(SECCOMP_RET_ERRNO | EACCES, 0);
	make(6, 0);
	CHECK_DONE(&steps, 1, -EACCES);
	CHECK_DONE(&steps, 3, judged == FILTER_ANY_ARGUMENT ? -EACCES : MASK);
	CHECK_DONE(&steps, 4, -EACCES);
	CHECK_DONE(&steps, 5, -ECANCELED);
	check_mask(judged == FILTER_ANY_ARGUMENT ? MASK : JUDGED + 1);
}

static void errno_ends_chain(void)
{
	open_ring();
	ring_put(&steps, 0, SYS_getpid);
	ring_put(&steps, 1, SYS_umask, JUDGED);
	ring_put(&steps, 2, TL_NR_INCREASE, &kept->passed, 1);
	filter(SECCOMP_RET_ERRNO | EACCES, 0);
	make(3, TL_PROGRAM_CHAIN);
	CHECK_DONE(&ring, 0, -EACCES);
	CHECK_DONE(&steps, 0, getpid());
	CHECK_DONE(&steps, 1, -EACCES);
	CHECK_EQ(ring_state(&steps, 2), TL_SUBMITTED);
	CHECK_EQ(kept->passed, 0);
	check_mask(MASK);
}

/* The wait status of a child that runs `body`. */
static int run(void (*body)(void))
{
	memset(kept, 0, sizeof(*kept));
	for (unsigned int turn = 0; turn < TURNS; turn++)
		kept->results[turn] = UNTOUCHED;
	return child_run(body);
}

static void check_all(void)
{
	CHECK_EXITED(run(errno_is_result), 0);
	CHECK_EXITED(run(trap_stops), 0);
	CHECK_EXITED(run(listener_answers), 0);
	CHECK_EXITED(run(another_thread_filters), 0);
	CHECK_EXITED(run(kill_spares_others), 0);
	CHECK_EXITED(run(taken_argument_is_judged), 0);
	CHECK_KILLED(run(kill_process), SIGSYS);
	check_results(0, 0, first_judged());
	if (by_worker) {
		CHECK_EXITED(run(errno_ends_chain), 0);
		return;
	}
	CHECK_KILLED(run(kill_only_thread), SIGSYS);
	check_results(0, 0, first_judged());
}

int main(void)
{
	kept = shared_memory(sizeof(*kept));
	for (int round = 0; round < 4; round++) {
		by_worker = round & 1;
		judged = round & 2 ? FILTER_ANY_ARGUMENT : JUDGED;
		/* The runner shows it where a check fails. */
		fprintf(stderr, "a program of a %s under a filter of %s:\n",
			by_worker ? "worker" : "thread",
			judged == JUDGED ? "one argument" : "any argument");
		check_all();
	}
	return 0;
}
