// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process that harms itself in supervisor mode gets the signal that it would get in user mode,
 * and nobody else notices: wild, null and non-canonical addresses, writes to read-only and jumps
 * to non-executable pages, undefined instructions, arithmetic traps, breakpoints, bad stacks.
 */
#include "supervisor.h"

#define CORE "/tmp/tl-core"

#define TRIES_MAX 20

static struct witness *witness;
static bool in_user_mode;	/* how the child that is forked next does it */
static char *no_code;		/* a page that may not be executed */

/*
 * A call, which returns in supervisor mode, then CS is written down and the harm done. Whoever
 * survives exits with 0, which is no signal.
 */
#define HARM(name, code) static void name(void)					\
{										\
	register char *page __asm__("r12") = no_code;				\
										\
	witness->tries++;	/* the page is there: no fault at CS */		\
	if (!in_user_mode) {							\
		CHECK_EQ(raw_switch_supervisor(0), 0);				\
		reach_supervisor();						\
	}									\
	__asm__ volatile("mov %[getppid], %%eax\n\t"				\
			 "syscall\n\t"						\
			 "mov %%cs, %[cs]\n\t"					\
			 code							\
			 : [cs] "=m"(witness->cs)				\
			 : [getppid] "i"(SYS_getppid), "r"(page)		\
			 : "rax", "rcx", "rdx", "r11", "memory", "cc");		\
}

HARM(null_write, "movl $1, 8")
HARM(null_read, "mov 8, %%eax")
HARM(wild_write, "mov $0x123456789000, %%rax; movl $1, (%%rax)")
HARM(non_canonical_read, "mov $0x8000123412341234, %%rax; mov (%%rax), %%eax")
HARM(non_canonical_jump, "mov $0x8000123412341234, %%rax; jmp *%%rax")
HARM(read_only_write, "lea (%%rip), %%rax; movb $1, (%%rax)")
HARM(null_call, "xor %%eax, %%eax; call *%%rax")
HARM(not_executable_call, "call *%%r12")
HARM(undefined, "ud2")
HARM(divide_by_zero, "xor %%ecx, %%ecx; xor %%edx, %%edx; mov $1, %%eax; idivl %%ecx")
HARM(divide_overflow, "mov $-1, %%ecx; mov $0x80000000, %%eax; cltd; idivl %%ecx")
HARM(breakpoint, "int3")
HARM(bad_segment, "mov $0xfff8, %%eax; mov %%eax, %%fs")
HARM(null_stack, "xor %%esp, %%esp; push %%rax")
HARM(low_stack, "mov $0x1000, %%esp; push %%rax")
HARM(non_canonical_stack, "mov $0x8000123412341234, %%rsp; push %%rax")
HARM(simd_exception, "pushq $0; ldmxcsr (%%rsp); xorps %%xmm0, %%xmm0; divss %%xmm0, %%xmm0")
HARM(x87_exception, "pushq $0; fldcw (%%rsp); fldz; fldz; fdivrp; fwait")

static const struct harm {
	const char *name;
	void (*run)(void);
} harms[] = {
	{ "null write", null_write },
	{ "null read", null_read },
	{ "wild write", wild_write },
	{ "non-canonical read", non_canonical_read },
	{ "non-canonical jump", non_canonical_jump },
	{ "write to read-only memory", read_only_write },
	{ "call of null", null_call },
	{ "call of data", not_executable_call },
	{ "undefined instruction", undefined },
	{ "division by zero", divide_by_zero },
	{ "division that overflows", divide_overflow },
	{ "int3", breakpoint },
	{ "bad segment", bad_segment },
	{ "null stack", null_stack },
	{ "low stack", low_stack },
	{ "non-canonical stack", non_canonical_stack },
	{ "exception of SSE", simd_exception },
	{ "exception of the x87", x87_exception },
};

/* Again, until no interrupt came between the call and the harm. */
static void check_harm(const struct harm *harm)
{
	int want, status;

	in_user_mode = true;
	want = child_run(harm->run);
	if (!WIFSIGNALED(want))
		FAIL("%s: wait status 0x%x in user mode", harm->name, want);
	/* LASS, off under a switched thread, finds the last page in the kernel's half: #SS. */
	if (harm->run == null_stack && WTERMSIG(want) == SIGBUS && processor_has("lass"))
		want = (want & WCOREFLAG) | SIGSEGV;
	in_user_mode = false;
	witness->cs = USER_CS;
	for (int i = 0; i < TRIES_MAX && witness->cs == USER_CS; i++) {
		unlink(CORE);
		status = child_run(harm->run);
		if (status != want)
			FAIL("%s: wait status 0x%x, 0x%x in user mode", harm->name, status, want);
	}
	if (witness->cs == USER_CS)
		FAIL("%s: never in supervisor mode in %d tries", harm->name, TRIES_MAX);
}

int main(void)
{
	supervisor_need();
	/* A whole path, of a new file: a process that is closed to its user gets no other dump. */
	if (write_file("/proc/sys/kernel/core_pattern", CORE) < 0)
		SKIP("cannot say where core dumps go");
	witness = shared_memory(sizeof(*witness));
	no_code = MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0));
	*no_code = (char)0xc3;	/* ret */
	for (size_t i = 0; i < sizeof(harms) / sizeof(*harms); i++)
		check_harm(&harms[i]);
	enter_supervisor(0);	/* others still can */
	CHECK_EQ(supervisor_info().processes, 1);
	unlink(CORE);
	return 0;
}
