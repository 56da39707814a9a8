// SPDX-License-Identifier: GPL-2.0-only
/*
 * Every flag and register that the module's stubs or its entry could touch is in supervisor mode
 * what it is in user mode: after an interrupt, a fault, a trap, a signal, a call, a switch of
 * threads or of modes, and a stop for a tracer; and as a handler and a tracer see it. A table of
 * states is run through a table of events in user mode first, then in supervisor mode.
 *
 * States and events stand in one routine of assembly, since no C can run with them: it loads a
 * state, calls the event, and stores what it finds.
 */
#include <asm/ldt.h>
#include <stddef.h>
#include <sys/auxv.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <ucontext.h>

#include "supervisor.h"

#define PASSES 20		/* in supervisor mode: interrupts undo some before they begin */
#define SIGNALS_MAX 1000	/* more than one pass has steps */
#define PAGE 4096
#define HWCAP2_FSGSBASE 2
#define LDT_DATA 0x7		/* first entry, for level 3 */
#define INTERRUPT_SPINS 3000000000ul
#define USER_SPINS 1000000ul

#define ARITHMETIC 0x8d5ul	/* CF PF AF ZF SF OF */
#define TF (1ul << 8)
#define IF (1ul << 9)
#define DF (1ul << 10)
#define IOPL (3ul << 12)
#define NT (1ul << 14)
#define AC (1ul << 18)
#define ID (1ul << 21)
#define PLAIN (IF | 2ul)

struct state {
	uint64_t flags;
	uint64_t fs_base, gs_base;	/* loaded where the selector is 0 */
	uint32_t mxcsr;
	uint16_t x87_control;
	uint16_t ds, es, fs, gs;
};

/* What one pass of a state through an event left behind; compared as bytes. */
struct found {
	struct state after;
	struct state seen;	/* in the signal's context, or by the tracer */
	struct state handler;	/* what its handler began with */
	uint64_t selectors;	/* cs, gs, fs, ss of the context; cs and ss of the tracer */
	uint64_t signals;
};

struct row {
	const char *name;
	struct state in;
};

#define NORMAL .mxcsr = 0x1f80, .x87_control = 0x37f
static const struct row rows[] = {
	{ "nothing", { PLAIN, NORMAL } },
	{ "arithmetic flags", { PLAIN | ARITHMETIC, NORMAL } },
	{ "direction", { PLAIN | DF, NORMAL } },
	{ "nested task", { PLAIN | NT, NORMAL } },
	{ "identification", { PLAIN | ID, NORMAL } },
	{ "alignment check", { PLAIN | AC, NORMAL } },
	{ "I/O privilege", { PLAIN | IOPL, NORMAL } },
	{ "no interrupts", { PLAIN & ~IF, NORMAL } },
	{ "single step", { PLAIN | TF, NORMAL } },
	{ "single step, alignment check", { PLAIN | TF | AC, NORMAL } },
	{ "all flags", { PLAIN | ARITHMETIC | DF | NT | ID | AC | IOPL, NORMAL } },
	{ "rounding", { PLAIN, .mxcsr = 0x7fbf, .x87_control = 0xf7f } },
	{ "flush to zero", { PLAIN, .mxcsr = 0xffc0, .x87_control = 0x07f } },
	{ "segments", { PLAIN, NORMAL, .ds = USER_SS, .es = USER_SS, .fs = USER_SS,
			.gs = USER_SS } },
	{ "local segments", { PLAIN | AC, NORMAL, .ds = LDT_DATA, .es = LDT_DATA,
			      .fs = LDT_DATA, .gs = LDT_DATA } },
	{ "bases", { PLAIN, 0x7123456789a0, 0x6fedcba98760, NORMAL } },
	{ "one of each", { PLAIN | AC | DF, 0x1000, 0x2000, .mxcsr = 0x3fa1, .x87_control = 0xb7f,
			   .ds = USER_SS } },
};

/* Arguments of the event, and what the routine keeps beside the state. */
uint64_t state_call[4];		/* rax, rdi, rsi, rdx */
uint16_t state_began_in;	/* cs just before the flags were loaded */
uint64_t state_own_bases[2];
void state_pass(const struct state *in, struct state *out, void (*event)(void));

#define FIELD(name) [name] "i"(offsetof(struct state, name))

static __attribute__((used)) void state_routine(void)
{
	__asm__ volatile(
		".globl state_pass\n"
		"state_pass:\n\t"
		"push %%rbx; push %%rbp; push %%r12; push %%r13; push %%r14; push %%r15\n\t"
		"mov %%rdi, %%rbx; mov %%rsi, %%rbp; mov %%rdx, %%r15\n\t"
		"rdfsbase %%rax; mov %%rax, state_own_bases(%%rip)\n\t"
		"rdgsbase %%rax; mov %%rax, state_own_bases+8(%%rip)\n\t"
		"movw %c[ds](%%rbx), %%ds; movw %c[es](%%rbx), %%es\n\t"
		"movzwl %c[fs](%%rbx), %%eax; mov %%eax, %%fs; test %%eax, %%eax; jnz 1f\n\t"
		"mov %c[fs_base](%%rbx), %%rcx; wrfsbase %%rcx\n"
		"1:	movzwl %c[gs](%%rbx), %%eax; mov %%eax, %%gs; test %%eax, %%eax; jnz 1f\n\t"
		"mov %c[gs_base](%%rbx), %%rcx; wrgsbase %%rcx\n"
		"1:	ldmxcsr %c[mxcsr](%%rbx); fldcw %c[x87_control](%%rbx)\n\t"
		"mov state_call(%%rip), %%rax; mov state_call+8(%%rip), %%rdi\n\t"
		"mov state_call+16(%%rip), %%rsi; mov state_call+24(%%rip), %%rdx\n\t"
		"movw %%cs, state_began_in(%%rip)\n\t"
		"pushq %c[flags](%%rbx); popfq\n\t"
		"call *%%r15\n\t"
		"pushfq; popq %c[flags](%%rbp); pushq $0x202; popfq\n\t"
		"stmxcsr %c[mxcsr](%%rbp); fnstcw %c[x87_control](%%rbp); fninit\n\t"
		"movw %%ds, %c[ds](%%rbp); movw %%es, %c[es](%%rbp)\n\t"
		"movw %%fs, %c[fs](%%rbp); movw %%gs, %c[gs](%%rbp)\n\t"
		"rdfsbase %%rax; mov %%rax, %c[fs_base](%%rbp)\n\t"
		"rdgsbase %%rax; mov %%rax, %c[gs_base](%%rbp)\n\t"
		"xor %%eax, %%eax; mov %%eax, %%ds; mov %%eax, %%es\n\t"
		"mov %%eax, %%fs; mov %%eax, %%gs\n\t"
		"mov state_own_bases(%%rip), %%rax; wrfsbase %%rax\n\t"
		"mov state_own_bases+8(%%rip), %%rax; wrgsbase %%rax\n\t"
		"pushq $0x1f80; ldmxcsr (%%rsp); pop %%rax\n\t"
		"pop %%r15; pop %%r14; pop %%r13; pop %%r12; pop %%rbp; pop %%rbx\n\t"
		"ret"
		: : FIELD(flags), FIELD(fs_base), FIELD(gs_base), FIELD(mxcsr), FIELD(x87_control),
		FIELD(ds), FIELD(es), FIELD(fs), FIELD(gs));
	__builtin_unreachable();
}

/* An event returns by `ret`; none changes a flag. Where one is resumed is a label of its own. */
#define EVENT(name, code)							\
	void event_##name(void);						\
	extern char event_##name##_end[];					\
	__asm__(".pushsection .text\n"						\
		"event_" #name ":\n\t" code "\n"				\
		"event_" #name "_end:\n\t"					\
		"ret\n"								\
		".popsection\n")

/* Until an interrupt has taken the thread to user mode, or so many times. */
EVENT(interrupt, "mov %rdi, %rcx\n"
      "1:	lea -1(%rcx), %rcx\n\t"
      "jrcxz event_interrupt_end\n\t"
      "mov %rcx, %rdx; mov %cs, %ecx; lea -0x33(%rcx), %rcx; jrcxz 2f\n\t"
      "mov %rdx, %rcx; jmp 1b\n"
      "2:	mov %rdx, %rcx\n"
      "3:	lea -1(%rsi), %rsi; mov %rsi, %rcx; jrcxz event_interrupt_end; jmp 3b");
EVENT(page_fault, "movb $1, (%rdi)");
EVENT(bad_address, "movb $1, (%rdi)");
EVENT(bad_code, "ud2");
EVENT(bad_selector, "mov %esi, %fs");
EVENT(trap, "int3");
EVENT(call, "syscall");
EVENT(two_calls, "syscall; mov $110, %eax; syscall");
EVENT(users_selector, "mov %esi, %ss");
EVENT(own_selector, "mov %ss, %edx; movb $1, (%rdi); mov %edx, %ss");

enum demotion { BY_CALL, BY_INTERRUPT, BY_TRACER };

static const struct event {
	const char *name;
	void (*run)(void);
	char *resume;		/* where the handler goes on, or NULL: where the signal came */
	enum demotion how;
	bool from_user;		/* in the second round, too */
	uint64_t call[4];
} events[] = {
	{ "interrupt", event_interrupt, NULL, BY_INTERRUPT, false, { 0 } },
	{ "page fault", event_page_fault, NULL, BY_CALL, false, { 0 } },
	{ "bad address", event_bad_address, event_bad_address_end, BY_CALL, false, { 0, 16 } },
	{ "bad code", event_bad_code, event_bad_code_end, BY_CALL, false, { 0 } },
	{ "bad selector", event_bad_selector, event_bad_selector_end, BY_CALL, false,
	  { 0, 0, 0x7ffb } },
	{ "trap", event_trap, NULL, BY_CALL, false, { 0 } },
	{ "user mode's selector", event_users_selector, NULL, BY_CALL, false, { 0, 0, USER_SS } },
	{ "own selector", event_own_selector, NULL, BY_CALL, false, { 0 } },
	{ "call", event_call, NULL, BY_CALL, false, { SYS_getppid } },
	{ "two calls", event_two_calls, NULL, BY_CALL, false, { SYS_getppid } },
	{ "signal", event_call, NULL, BY_CALL, false, { SYS_tgkill } },
	{ "switch of threads", event_call, NULL, BY_CALL, false, { SYS_nanosleep } },
	{ "switch of threads by a yield", event_two_calls, NULL, BY_CALL, false,
	  { SYS_sched_yield } },
	{ "switch to user mode", event_two_calls, NULL, BY_CALL, false,
	  { SYS_ioctl, TL_MODE_USER } },
	{ "switch to supervisor mode", event_two_calls, NULL, BY_CALL, true,
	  { SYS_ioctl, TL_MODE_SUPERVISOR } },
	{ "tracer", event_trap, NULL, BY_TRACER, false, { 0 } },
};

#define ROWS (sizeof(rows) / sizeof(*rows))
#define EVENTS (sizeof(events) / sizeof(*events))

static struct found *found;		/* of this pass; a tracer writes it, too */
static const struct event *now;
static const char endless[] = "an instruction that user mode executes faults again and again\n";
static volatile char *page;

/* Uses no thread-local storage: FS may be anything. */
static void handler(int signal, siginfo_t *info, void *context)
{
	ucontext_t *user = context;
	struct state *begun = &found->handler;

	(void)signal;
	(void)info;
	__asm__ volatile("pushfq; popq %0" : "=m"(begun->flags));
	begun->flags &= ~ARITHMETIC;
	__asm__ volatile("stmxcsr %0; fnstcw %1; movw %%ds, %2; movw %%es, %3; movw %%fs, %4\n\t"
			 "movw %%gs, %5"
			 : "=m"(begun->mxcsr), "=m"(begun->x87_control), "=m"(begun->ds),
			   "=m"(begun->es), "=m"(begun->fs), "=m"(begun->gs));
	__asm__ volatile("rdfsbase %0; rdgsbase %1" : "=r"(begun->fs_base), "=r"(begun->gs_base));
	found->seen.flags = (uint64_t)user->uc_mcontext.gregs[REG_EFL];
	found->seen.mxcsr = user->uc_mcontext.fpregs->mxcsr;
	found->seen.x87_control = user->uc_mcontext.fpregs->cwd;
	found->selectors = (uint64_t)user->uc_mcontext.gregs[REG_CSGSFS];
	if (found->signals++ == SIGNALS_MAX) {
		sys(SYS_write, 2, endless, sizeof(endless) - 1);
		sys(SYS_exit_group, EXIT_FAIL);
	}
	if (now->resume)
		user->uc_mcontext.gregs[REG_RIP] = (greg_t)now->resume;
}

/* Steps are not told from faults by their address: a handler that skips would skip too much. */
static bool applies(const struct event *event, const struct row *row)
{
	if (row->in.flags & TF)
		return event->how == BY_CALL && !event->resume;
	return event->how != BY_INTERRUPT || row->in.flags & IF;
}

static void prepare(const struct event *event, bool supervisor)
{
	static const struct timespec nap = { .tv_nsec = 1000 };
	static struct tl_switch request;

	memcpy(state_call, event->call, sizeof(state_call));
	switch (event->call[0]) {
	case SYS_tgkill:
		state_call[1] = (uint64_t)getpid();
		state_call[2] = (uint64_t)sys(SYS_gettid);
		state_call[3] = SIGUSR1;
		break;
	case SYS_nanosleep:
		state_call[1] = (uintptr_t)&nap;
		break;
	case SYS_ioctl:
		request = (struct tl_switch){ .size = sizeof(request), .mode = TL_MODE_USER };
		if (supervisor)
			request.mode = (uint32_t)event->call[1];
		state_call[1] = (uint64_t)supervisor_fd();
		state_call[2] = TL_IOC_SWITCH;
		state_call[3] = (uintptr_t)&request;
		break;
	}
	if (event->run == event_interrupt) {
		state_call[1] = supervisor ? INTERRUPT_SPINS : 2;
		state_call[2] = USER_SPINS;
	}
	if (event->run == event_page_fault || event->run == event_own_selector) {
		MUST(madvise((void *)page, PAGE, MADV_DONTNEED));
		state_call[1] = (uintptr_t)page;
	}
}

/* Returns whether the event began at level 0. */
static bool pass(const struct row *row, const struct event *event, bool supervisor)
{
	memset(found, 0, sizeof(*found));
	prepare(event, supervisor);
	now = event;
	if (supervisor && event->from_user)
		enter_user();
	else if (supervisor)
		enter_supervisor(0);
	state_pass(&row->in, &found->after, event->run);
	return (state_began_in & 3) == 0;
}

/* The child of a tracer, in either mode. */
static void traced(const struct row *row, const struct event *event, bool supervisor, bool *inside)
{
	struct user_regs_struct registers;
	struct user_fpregs_struct vectors;
	pid_t pid = MUST(fork());
	int status;

	if (pid == 0) {
		MUST(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
		_exit(pass(row, event, supervisor) ? 10 : 13);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP)
		FAIL("%s: wait status is 0x%x, expected a stop by SIGTRAP", row->name, status);
	MUST(ptrace(PTRACE_GETREGS, pid, NULL, &registers));
	MUST(ptrace(PTRACE_GETFPREGS, pid, NULL, &vectors));
	found->seen = (struct state){
		registers.eflags, registers.fs_base, registers.gs_base, vectors.mxcsr,
		vectors.cwd, (uint16_t)registers.ds, (uint16_t)registers.es,
		(uint16_t)registers.fs, (uint16_t)registers.gs,
	};
	found->selectors = registers.cs | registers.ss << 16;
	registers.eflags ^= ARITHMETIC | DF | NT | ID | AC;
	vectors.mxcsr ^= 0x6000;
	vectors.cwd ^= 0xc00;
	MUST(ptrace(PTRACE_SETREGS, pid, NULL, &registers));
	MUST(ptrace(PTRACE_SETFPREGS, pid, NULL, &vectors));
	MUST(ptrace(PTRACE_CONT, pid, NULL, NULL));
	status = child_wait(pid);
	if (!WIFEXITED(status) || (WEXITSTATUS(status) != 10 && WEXITSTATUS(status) != 13))
		FAIL("%s: wait status of the traced child is 0x%x", row->name, status);
	*inside = WEXITSTATUS(status) == 10;
}

static bool run(const struct row *row, const struct event *event, bool supervisor)
{
	bool inside;

	if (event->how != BY_TRACER)
		return pass(row, event, supervisor);
	memset(found, 0, sizeof(*found));
	traced(row, event, supervisor, &inside);
	return inside;
}

static bool differs(const char *where, const struct state *user, const struct state *supervisor)
{
	if (!memcmp(user, supervisor, sizeof(*user)))
		return false;
	for (int i = 0; i < 2; i++) {
		const struct state *one = i ? supervisor : user;

		fprintf(stderr, "%s, %s mode: flags 0x%llx, mxcsr 0x%x, x87 0x%x, ds %x es %x "
			"fs %x gs %x, bases 0x%llx 0x%llx\n", where, i ? "supervisor" : "user",
			(unsigned long long)one->flags, one->mxcsr, one->x87_control, one->ds,
			one->es, one->fs, one->gs, (unsigned long long)one->fs_base,
			(unsigned long long)one->gs_base);
	}
	return true;
}

/* Returns the number of differences. */
static unsigned int compare(const struct row *row, const struct event *event,
			    const struct found *user)
{
	bool bad = differs("after it", &user->after, &found->after);

	bad |= differs("in the context", &user->seen, &found->seen);
	bad |= differs("in the handler", &user->handler, &found->handler);
	if (user->selectors != found->selectors || user->signals != found->signals)
		bad = true;
	if (bad)
		fprintf(stderr, "%s over %s: selectors 0x%llx, expected 0x%llx; signals %llu, "
			"expected %llu\n", row->name, event->name,
			(unsigned long long)found->selectors, (unsigned long long)user->selectors,
			(unsigned long long)found->signals, (unsigned long long)user->signals);
	return bad;
}

static void need(void)
{
	struct user_desc data = {
		.base_addr = 0x123000, .limit = 0xfffff, .seg_32bit = 1, .limit_in_pages = 1,
		.useable = 1,
	};

	supervisor_need();
	if (!(getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE))
		SKIP("this processor or kernel has no instructions for the bases of FS and GS");
	MUST(sys(SYS_modify_ldt, 1, &data, sizeof(data)) ? -1 : 0);
}

int main(void)
{
	static struct found in_user_mode[ROWS][EVENTS];
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
	static const int signals[] = { SIGTRAP, SIGILL, SIGSEGV, SIGUSR1, SIGBUS };
	unsigned int passes = 0, inside = 0, differences = 0;

	need();
	found = shared_memory(sizeof(*found));
	page = MUST(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	for (unsigned int i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		MUST(sigaction(signals[i], &action, NULL));
	for (unsigned int mode = 0; mode <= PASSES; mode++)
		for (unsigned int r = 0; r < ROWS; r++)
			for (unsigned int e = 0; e < EVENTS; e++) {
				if (!applies(&events[e], &rows[r]))
					continue;
				passes += mode && !events[e].from_user;
				inside += run(&rows[r], &events[e], mode != 0);
				if (mode)
					differences += compare(&rows[r], &events[e],
							       &in_user_mode[r][e]);
				else
					in_user_mode[r][e] = *found;
			}
	fprintf(stderr, "%u of %u passes began at level 0\n", inside, passes);
	CHECK(inside > passes * 8 / 10);
	CHECK_EQ(differences, 0);
	return 0;
}
