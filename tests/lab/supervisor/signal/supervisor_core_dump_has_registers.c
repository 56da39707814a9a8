// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process that dies in supervisor mode leaves a core dump like any other: user mode's CS and SS,
 * the faulting instruction, and every register and flag as it was.
 */
#include <elf.h>
#include <stddef.h>
#include <sys/procfs.h>
#include <sys/resource.h>
#include <sys/user.h>

#include "supervisor.h"

#define CORE "/tmp/tl-core"	/* whole: a process closed to its user gets no other */
#define BYTES_MAX (64 << 20)
#define MAGIC 0x1111111111111111ul
#define RESUME 0x10000ul	/* the processor's, set by the fault */
#define FLAGS 0x244603ul	/* CF, IF, DF, NT, AC, ID */

extern char crash_here[];
static struct witness *witness;

/* Every register its own pattern, then the end. */
static void crash(void)
{
	struct rlimit no_limit = { RLIM_INFINITY, RLIM_INFINITY };

	MUST(setrlimit(RLIMIT_CORE, &no_limit));
	witness->tries++;
	enter_supervisor(0);
	__asm__ volatile("mov $110, %%eax\n\t"
			 "syscall\n\t"
			 "mov %%cs, %0\n\t"
			 "mov $0x1111111111111111, %%rax\n\t"
			 "lea (%%rax, %%rax), %%rbx\n\t"
			 "lea (%%rbx, %%rax), %%rcx\n\t"
			 "lea (%%rcx, %%rax), %%rdx\n\t"
			 "lea (%%rdx, %%rax), %%rsi\n\t"
			 "lea (%%rsi, %%rax), %%rdi\n\t"
			 "lea (%%rdi, %%rax), %%rbp\n\t"
			 "lea (%%rbp, %%rax), %%r8\n\t"
			 "lea (%%r8, %%rax), %%r9\n\t"
			 "lea (%%r9, %%rax), %%r10\n\t"
			 "lea (%%r10, %%rax), %%r11\n\t"
			 "lea (%%r11, %%rax), %%r12\n\t"
			 "lea (%%r12, %%rax), %%r13\n\t"
			 "lea (%%r13, %%rax), %%r14\n\t"
			 "lea (%%r14, %%rax), %%r15\n\t"
			 "pushq %1\n\t"
			 "popfq\n\t"
			 ".globl crash_here\n"
			 "crash_here: ud2"
			 : "=m"(witness->cs)
			 : "i"(FLAGS)
			 : "rax", "rcx", "r11");
	__builtin_unreachable();
}

/* The registers of the first thread in the file, which is the one that died. */
static struct user_regs_struct core_registers(void)
{
	static char bytes[BYTES_MAX];
	const Elf64_Ehdr *header = (const void *)bytes;
	const Elf64_Phdr *segments;
	struct user_regs_struct registers;
	long size = read_file(CORE, bytes, sizeof(bytes));

	CHECK(size > (long)sizeof(*header));
	CHECK(!memcmp(header->e_ident, ELFMAG, SELFMAG));
	segments = (const void *)(bytes + header->e_phoff);
	for (int i = 0; i < header->e_phnum; i++) {
		const Elf64_Nhdr *note = (const void *)(bytes + segments[i].p_offset);

		if (segments[i].p_type != PT_NOTE || note->n_type != NT_PRSTATUS)
			continue;
		memcpy(&registers, (const char *)(note + 1) + ((note->n_namesz + 3) & ~3u) +
		       offsetof(struct elf_prstatus, pr_reg), sizeof(registers));
		return registers;
	}
	FAIL("no NT_PRSTATUS in the core dump");
}

static void check_registers(const struct user_regs_struct *registers)
{
	const unsigned long patterns[] = {
		registers->rax, registers->rbx, registers->rcx, registers->rdx, registers->rsi,
		registers->rdi, registers->rbp, registers->r8, registers->r9, registers->r10,
		registers->r11, registers->r12, registers->r13, registers->r14, registers->r15,
	};

	for (unsigned long i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
		CHECK_EQ(patterns[i], (i + 1) * MAGIC);
	CHECK_EQ(registers->rip, crash_here);
	CHECK_EQ(registers->cs, USER_CS);
	CHECK_EQ(registers->ss, USER_SS);
	CHECK_EQ(registers->eflags & ~RESUME, FLAGS);
}

int main(void)
{
	struct user_regs_struct registers;
	int status;

	supervisor_need();
	witness = shared_memory(sizeof(*witness));
	if (write_file("/proc/sys/kernel/core_pattern", CORE) < 0)
		SKIP("cannot say where core dumps go");
	witness->cs = USER_CS;
	for (int i = 0; i < 20 && witness->cs == USER_CS; i++) {
		unlink(CORE);
		status = child_run(crash);
		CHECK_KILLED(status, SIGILL);
		if (!WCOREDUMP(status))
			SKIP("this kernel writes no core dumps");
	}
	CHECK_EQ(witness->cs & 3, 0);
	registers = core_registers();
	check_registers(&registers);
	unlink(CORE);
	return 0;
}
