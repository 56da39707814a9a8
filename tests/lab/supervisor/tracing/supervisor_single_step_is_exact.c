// SPDX-License-Identifier: GPL-2.0-only
/*
 * A program that single-steps itself (trap flag) stops after the same instructions in supervisor
 * mode as in user mode: through the entry into a call, its return, and the call's own flags.
 */
#include <ucontext.h>

#include "supervisor.h"

#define STOPS_MAX 64
#define ROUNDS 500
#define VSYSCALL_TIME 0xffffffffff600400ul

struct trace {
	unsigned int stops;
	uintptr_t at[STOPS_MAX];
};

static struct trace *volatile current_trace;

long stepped(volatile uint16_t *cs);
long stepped_away(volatile uint16_t *cs);

/*
 * stepped(cs): sets the trap flag right after a call and clears it some instructions and two
 * calls later. Writes CS down before the flag is set, returns what the last call did.
 */
__asm__(".pushsection .text\n"
	".globl stepped\n"
	"stepped:\n\t"
	"push %rbx\n\t"
	"mov %rdi, %rbx\n\t"
	"mov $110, %eax\n\t"
	"syscall\n\t"
	"mov %cs, (%rbx)\n\t"
	"pushfq\n\t"
	"orl $0x100, (%rsp)\n\t"
	"popfq\n\t"
	"nop\n\t"
	"mov $39, %eax\n\t"
	"syscall\n\t"
	"mov %rax, %rdx\n\t"
	"mov $186, %eax\n\t"
	"syscall\n\t"
	"lea 1(%rax), %rcx\n\t"
	"pushfq\n\t"
	"andl $~0x100, (%rsp)\n\t"
	"popfq\n\t"
	"nop\n\t"
	"pop %rbx\n\t"
	"ret\n"
	".popsection\n");

/* stepped_away(cs): the same with a call of the page of old time calls, and no result. */
__asm__(".pushsection .text\n"
	".globl stepped_away\n"
	"stepped_away:\n\t"
	"push %rbx\n\t"
	"mov %rdi, %rbx\n\t"
	"mov $110, %eax\n\t"
	"syscall\n\t"
	"xor %edi, %edi\n\t"
	"mov $0xffffffffff600400, %rdx\n\t"
	"mov %cs, (%rbx)\n\t"
	"pushfq\n\t"
	"orl $0x100, (%rsp)\n\t"
	"popfq\n\t"
	"call *%rdx\n\t"
	"nop\n\t"
	"pushfq\n\t"
	"andl $~0x100, (%rsp)\n\t"
	"popfq\n\t"
	"nop\n\t"
	"pop %rbx\n\t"
	"ret\n"
	".popsection\n");

static void stop(int signal, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	struct trace *trace = current_trace;

	(void)signal;
	CHECK_EQ(cpl(), 3);
	CHECK_EQ(info->si_code, TRAP_TRACE);
	CHECK_EQ(registers[REG_CSGSFS] & 0xffff, USER_CS);
	CHECK(trace->stops < STOPS_MAX);
	trace->at[trace->stops++] = (uintptr_t)registers[REG_RIP];
}

/* The kernel has no such page: goes back to the caller. */
static void go_back(int signal, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)signal;
	(void)info;
	CHECK_EQ((unsigned long)registers[REG_RIP], VSYSCALL_TIME);
	registers[REG_RIP] = *(greg_t *)registers[REG_RSP];
	registers[REG_RSP] += sizeof(greg_t);
}

static struct trace trace_calls(volatile uint16_t *cs)
{
	struct trace trace = { 0 };

	current_trace = &trace;
	CHECK_EQ(stepped(cs), getpid());	/* gettid of the first thread */
	return trace;
}

static struct trace trace_page(volatile uint16_t *cs)
{
	struct trace trace = { 0 };

	current_trace = &trace;
	stepped_away(cs);
	return trace;
}

/* Traces again and again, in supervisor mode; returns how often. */
static long check_traces(struct trace (*trace)(volatile uint16_t *cs), struct trace want)
{
	volatile uint16_t cs = 0;
	long inside = 0;

	for (int i = 0; i < ROUNDS; i++) {
		struct trace got = trace(&cs);

		inside += (cs & 3) == 0;
		CHECK_EQ(got.stops, want.stops);
		for (unsigned int k = 0; k < got.stops; k++)
			CHECK_EQ(got.at[k], want.at[k]);
	}
	CHECK_WITHIN(inside, ROUNDS * 9 / 10, ROUNDS);
	return inside;
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = stop, .sa_flags = SA_SIGINFO };
	struct trace calls, page;
	volatile uint16_t cs;
	long inside;

	MUST(sigaction(SIGTRAP, &action, NULL));
	action.sa_sigaction = go_back;
	MUST(sigaction(SIGSEGV, &action, NULL));
	calls = trace_calls(&cs);
	CHECK_WITHIN(calls.stops, 8, 10);	/* of ten, with or without those after a call */
	page = trace_page(&cs);
	CHECK(page.stops > 3 && page.at[0] == VSYSCALL_TIME);
	enter_supervisor(0);
	inside = check_traces(trace_calls, calls) + check_traces(trace_page, page);
	CHECK(process_counts(getpid()).demotions[TL_DEMOTED_DEBUG] >= (uint64_t)inside * 9 / 10);
	return 0;
}
