// SPDX-License-Identifier: GPL-2.0-only
/*
 * Breakpoint registers work on a process in supervisor mode: a watched variable stops it at its
 * next write, a watched instruction when it is reached; a watched buffer that the kernel fills for
 * a call traps there, in the kernel, which is nothing to a tracer. The process goes on in
 * supervisor mode in between and afterwards.
 */
#include <string.h>

#include "traced.h"

#define STOPS 40
#define DR7_WRITE_8 0xd0001ul	/* breakpoint 0: local, on writes, eight bytes */
#define DR7_EXECUTE 0x1ul

static long *filled;	/* by read(), on behalf of the target */

static void set_debug(pid_t pid, int n, unsigned long value)
{
	MUST(ptrace(PTRACE_POKEUSER, pid, offsetof(struct user, u_debugreg) +
		    (size_t)n * sizeof(long), value));
}

static void watch(pid_t pid, const volatile void *address, unsigned long control)
{
	set_debug(pid, 7, 0);
	set_debug(pid, 0, (unsigned long)address);
	set_debug(pid, 7, control);
}

static __attribute__((noinline)) void landmark(void)
{
	__asm__ volatile("" : : : "memory");
}

static void fill_and_call(struct target *target)
{
	int zero = MUST(open("/dev/zero", O_RDONLY));

	while (!target->end) {
		CHECK_EQ(sys(SYS_read, zero, filled, sizeof(*filled)), sizeof(*filled));
		target->inside += cpl() == 0;
		target->number++;
		landmark();
	}
}

static pid_t start_filling(struct target *target)
{
	pid_t pid = MUST(fork());

	if (pid == 0) {
		enter_supervisor(0);
		fill_and_call(target);
		_exit(0);
	}
	while (target->inside < 100)
		sleep_ms(1);
	return pid;
}

/*
 * With more than one CPU, Bochs compares a breakpoint on an instruction with the interrupted
 * instruction's address until the handler's first instruction is done, so the exception recurs for
 * ever.
 */
static bool in_bochs(void)
{
	char vendor[64];

	return read_file("/sys/class/dmi/id/bios_vendor", vendor, sizeof(vendor)) > 0 &&
	       strstr(vendor, "Bochs") != NULL;
}

/* Stops at a watched place, so many times; each time `counter` has gone on by `by`. */
static void check_stops(pid_t pid, const volatile uint64_t *counter, uint64_t by)
{
	uint64_t last = 0;

	for (int i = 0; i < STOPS; i++) {
		CHECK_EQ(trace_go(pid, PTRACE_CONT), SIGTRAP);
		trace_registers(pid);
		if (i > 0)
			CHECK_EQ(*counter - last, by);
		last = *counter;
	}
}

int main(void)
{
	struct target *target = shared_memory(sizeof(*target));
	struct target *filler = shared_memory(sizeof(*filler));
	struct tl_process process;
	pid_t pid = target_start(target);

	trace_attach(pid);
	watch(pid, &target->watched, DR7_WRITE_8);
	check_stops(pid, &target->number, 64);
	set_debug(pid, 7, 0);
	trace_detach(pid);
	target_wait(target, 1000);
	target_end(target, pid);

	filled = shared_memory(sizeof(*filled));
	pid = start_filling(filler);
	trace_attach(pid);
	watch(pid, filled, DR7_WRITE_8);
	MUST(ptrace(PTRACE_CONT, pid, NULL, NULL));
	target_wait(filler, 1000);
	MUST(kill(pid, SIGSTOP));
	CHECK_EQ(trace_stop(pid), SIGSTOP);
	if (!in_bochs()) {
		watch(pid, (const void *)landmark, DR7_EXECUTE);
		check_stops(pid, &filler->number, 1);
		process = process_counts(pid);
		CHECK(process.demotions[TL_DEMOTED_DEBUG] > 0);
	}
	set_debug(pid, 7, 0);
	trace_detach(pid);
	target_wait(filler, 1000);
	target_end(filler, pid);
	if (in_bochs())
		SKIP("breakpoints on data stop; one on an instruction hangs a CPU of Bochs");
	return 0;
}
