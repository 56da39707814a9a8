/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A program that saves cs and ss and loads them again gets no fault, whichever level it was at when
 * it saved them and whichever it is at when it loads them: by mov to ss, by iretq with both, by the
 * same far jump with either level's cs in turn, and by the return from a signal into whose frame it
 * has written them. A pair of which each is of another level faults, as a thread's that may not be
 * in supervisor mode does. Far returns are left out: the emulator of the lab makes them wrongly in
 * user mode.
 *
 * What differs is shown, too: where UMIP has the kernel answer sgdt and sidt for user mode, level 0
 * gets the processor's own answer.
 */
#include <asm/ldt.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <ucontext.h>

#include "supervisor.h"

#define KERNEL_CS 0x10
#define KERNEL_SS 0x18
#define TIMES 200
#define STORM_MS 3000
#define PAGE 4096
#define LDT_STACK 0x7		/* first entry, for level 3 */

static volatile char *fresh;	/* pages that are not there, each of which faults once */
static size_t fresh_next = TIMES;

static inline unsigned int stack_segment(void)
{
	unsigned int ss;

	__asm__ volatile("mov %%ss, %0" : "=r"(ss));
	return ss;
}

static inline void load_ss(unsigned int selector)
{
	__asm__ volatile("mov %0, %%ss" : : "r"(selector) : "memory");
}

/* Goes to the next instruction with these selectors and everything else as it is. */
static inline void return_by_iret(unsigned long cs, unsigned long ss)
{
	__asm__ volatile("mov %%rsp, %%rax\n\t"
			 "lea -128(%%rsp), %%rsp\n\t"	/* the red zone */
			 "push %1\n\t"
			 "push %%rax\n\t"
			 "pushfq\n\t"
			 "push %0\n\t"
			 "lea 1f(%%rip), %%rcx\n\t"
			 "push %%rcx\n\t"
			 "iretq\n"
			 "1:"
			 : : "r"(cs), "r"(ss) : "rax", "rcx", "memory", "cc");
}

/* Goes to the next instruction by a far jump, which changes cs alone. */
static __attribute__((noinline)) void jump_far(unsigned int cs)
{
	struct { uint32_t address; uint16_t segment; } __attribute__((packed)) far;

	__asm__ volatile("lea 1f(%%rip), %%rax\n\t"
			 "movl %%eax, %[address]\n\t"
			 "movw %w[cs], %[segment]\n\t"
			 "ljmp *%[address]\n"
			 "1:"
			 : [address] "=m"(far.address), [segment] "=m"(far.segment)
			 : [cs] "r"(cs) : "rax", "memory");
}

/* Leaves supervisor mode by a page fault, until the next call. */
static inline void demote(void)
{
	if (!fresh)
		fresh = MUST(mmap(NULL, TIMES * PAGE, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	if (fresh_next == TIMES) {
		MUST(madvise((void *)fresh, TIMES * PAGE, MADV_DONTNEED));
		fresh_next = 0;
	}
	fresh[fresh_next++ * PAGE] = 1;
}

/* 0x2b is loaded at level 0: the thread is in user mode then, where that is allowed. */
static void saved_in_user_mode(void)
{
	struct tl_process before = process_counts(getpid()), after;
	unsigned int ss, done = 0;

	for (int i = 0; i < TIMES; i++) {
		reach_supervisor();
		if (cpl())
			continue;
		load_ss(USER_SS);
		ss = stack_segment();
		if (cpl() == 3 && ss == USER_SS)
			done++;
	}
	CHECK(done > MOST(TIMES));
	after = process_counts(getpid());
	CHECK(demoted(&before, &after, TL_DEMOTED_EXCEPTION) > MOST(TIMES));
}

/* What was saved at level 0 is loaded in user mode: the thread is at level 0 again. */
static void saved_in_supervisor_mode(bool by_iret)
{
	unsigned int cs, ss, raised = 0;

	for (int i = 0; i < TIMES; i++) {
		if (fresh_next == TIMES)
			demote();
		reach_supervisor();
		cs = code_segment();
		ss = stack_segment();
		if (cs != KERNEL_CS || ss != KERNEL_SS)
			continue;
		demote();
		CHECK_EQ(cpl(), 3);
		if (by_iret)
			return_by_iret(cs, ss);
		else
			load_ss(ss);
		raised += cpl() == 0;
		CHECK(sys(SYS_getppid) > 0);
	}
	CHECK(raised > MOST(TIMES - TIMES / 10));
}

/* What was tried again at level 0 loads user mode's selector there, right after that. */
static void jumps_to_both_levels(void)
{
	unsigned int done = 0;

	for (int i = 0; i < TIMES; i++) {
		if (fresh_next == TIMES)
			demote();
		reach_supervisor();
		if (code_segment() != KERNEL_CS)
			continue;
		demote();
		jump_far(KERNEL_CS);
		done += cpl() == 0;
		jump_far(USER_CS);
		CHECK_EQ(cpl(), 3);
	}
	CHECK(done > MOST(TIMES - TIMES / 10));
}

static uint64_t frame_cs, frame_ss;	/* what the handler writes */

static void write_frame(int signal, siginfo_t *info, void *context)
{
	greg_t *selectors = &((ucontext_t *)context)->uc_mcontext.gregs[REG_CSGSFS];

	(void)signal;
	(void)info;
	CHECK_EQ(*selectors & 0xffff, USER_CS);
	CHECK_EQ(*selectors >> 48 & 0xffff, USER_SS);
	*selectors = (greg_t)(((uint64_t)*selectors & 0xffffffff0000) | frame_cs | frame_ss << 48);
	handled++;
}

/* Sends itself a signal whose handler writes the frame; returns ss after it. */
static unsigned int return_from_signal(long number)
{
	unsigned int ss;
	long result = SYS_tgkill;

	/* A 16-bit stack segment leaves a part of rsp undefined. */
	__asm__ volatile("mov %%rsp, %%r15\n\t"
			 "syscall\n\t"
			 "mov %%ss, %%ebx\n\t"
			 "mov %[user], %%ss\n\t"
			 "mov %%r15, %%rsp\n\t"
			 "mov %%ebx, %[ss]"
			 : "+a"(result), [ss] "=&r"(ss)
			 : "D"(getpid()), "S"(sys(SYS_gettid)), "d"(number), [user] "r"(USER_SS)
			 : "rbx", "rcx", "r11", "r15", "memory");
	CHECK_EQ(result, 0);
	return ss;
}

/* Both selectors of level 0, one of them, and cs with a 16-bit stack segment of one's own. */
static void written_to_a_frame(void)
{
	const uint64_t pairs[][2] = {
		{ KERNEL_CS, KERNEL_SS }, { KERNEL_CS, USER_SS }, { USER_CS, KERNEL_SS },
		{ KERNEL_CS, LDT_STACK }, { USER_CS, LDT_STACK },
	};
	struct sigaction action = { .sa_sigaction = write_frame, .sa_flags = SA_SIGINFO };
	struct user_desc stack = { .limit = 0xffff, .useable = 1 };

	MUST(sigaction(SIGUSR1, &action, NULL));
	CHECK_EQ(sys(SYS_modify_ldt, 1, &stack, sizeof(stack)), 0);
	for (int i = 0; i < TIMES; i++) {
		const uint64_t *pair = pairs[i % 5];

		reach_supervisor();
		frame_cs = pair[0];
		frame_ss = pair[1];
		CHECK_EQ(return_from_signal(SIGUSR1), pair[1] == LDT_STACK ? LDT_STACK : USER_SS);
		CHECK_EQ(handled, i + 1);
	}
	CHECK_EQ(sys(SYS_getpid), getpid());
}

/* The same in user mode: they are not the program's. */
static void written_in_user_mode(void)
{
	pid_t pid = MUST(fork());

	if (pid == 0) {
		enter_user();
		frame_cs = KERNEL_CS;
		frame_ss = KERNEL_SS;
		return_from_signal(SIGUSR1);
		_exit(0);
	}
	CHECK_KILLED(child_wait(pid), SIGSEGV);
}

/* Saves and loads at any moment that interrupts leave. */
static void storm(void)
{
	uint64_t end = now_ms() + STORM_MS;
	volatile unsigned long pattern = 0;

	while (now_ms() < end) {
		for (int i = 0; i < 1000; i++) {
			unsigned int ss = stack_segment();
			unsigned long kept = pattern;

			if (i % 3 == 0)
				sys(SYS_getppid);
			if (i % 5 == 0)
				demote();
			load_ss(ss);
			CHECK_EQ(pattern, kept);
			pattern = kept + 1;
		}
	}
}

/* At neither level is such a pair one. */
static void mixed_pair(unsigned long cs, unsigned long ss)
{
	pid_t pid = MUST(fork());

	if (pid == 0) {
		reach_supervisor();
		demote();
		return_by_iret(cs, ss);
		_exit(0);
	}
	CHECK_KILLED(child_wait(pid), SIGSEGV);
}

/* A filtered thread's next call is made from user mode, so no selector takes it to level 0. */
static void filtered(void)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = { 1, &allow };
	pid_t pid = MUST(fork());

	if (pid == 0) {
		reach_supervisor();
		MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
		MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
		load_ss(KERNEL_SS);
		_exit(cpl() ? 3 : 0);
	}
	CHECK_KILLED(child_wait(pid), SIGSEGV);
}

static void in_user_mode(void)
{
	pid_t pid = MUST(fork());

	if (pid == 0) {
		enter_user();
		load_ss(KERNEL_SS);
		_exit(cpl() ? 3 : 0);
	}
	CHECK_KILLED(child_wait(pid), SIGSEGV);
}

struct table {
	uint16_t limit;
	uint64_t base;
} __attribute__((packed));

/* Both tables at the given level: 3, or 0 in supervisor mode. */
static void tables_get(unsigned int level, struct table *gdt, struct table *idt)
{
	for (int i = 0; i < REACH_CALLS; i++) {
		sys(SYS_getppid);
		__asm__ volatile("sgdt %0" : "=m"(*gdt));
		__asm__ volatile("sidt %0" : "=m"(*idt));
		if (cpl() == level)
			return;
	}
	FAIL("not at level %u after %d calls", level, REACH_CALLS);
}

static void descriptor_tables(void)
{
	const uint64_t umip_gdt = 0xfffffffffffe0000, umip_idt = 0xffffffffffff0000;
	struct table gdt, idt;

	tables_get(0, &gdt, &idt);
	CHECK(gdt.base != umip_gdt && gdt.limit);
	CHECK(idt.base != umip_idt && idt.limit);
	enter_user();
	tables_get(3, &gdt, &idt);
	CHECK_EQ(gdt.base == umip_gdt, idt.base == umip_idt);
	CHECK_EQ(gdt.base == umip_gdt, !gdt.limit);
}

int main(void)
{
	enter_supervisor(TL_SWITCH_CHILDREN);
	saved_in_user_mode();
	saved_in_supervisor_mode(false);
	saved_in_supervisor_mode(true);
	jumps_to_both_levels();
	written_to_a_frame();
	written_in_user_mode();
	storm();
	mixed_pair(KERNEL_CS, USER_SS);
	mixed_pair(USER_CS, KERNEL_SS);
	filtered();
	in_user_mode();
	descriptor_tables();
	return 0;
}
