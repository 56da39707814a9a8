// SPDX-License-Identifier: GPL-2.0-only
/*
 * A switched process that executes a 32-bit program leaves supervisor mode whatever was asked, and
 * the program runs; a 32-bit process is not switched, with the reason.
 */
#include <elf.h>
#include <sys/stat.h>

#include "supervisor.h"

#define BASE 0x10000u
#define CS_OF_USER_32 0x23
#define EXIT_32 1
#define PAUSE_32 29

/* exit(CS) or, with an argument, pause(). */
static const uint8_t code[] = {
	0x83, 0x3c, 0x24, 0x01,			/* cmpl $1, (%esp): argc */
	0x75, 0x0b,				/* jne pause */
	0x8c, 0xcb,				/* mov %cs, %ebx */
	0xb8, EXIT_32, 0, 0, 0,			/* mov $exit, %eax */
	0xcd, 0x80,				/* int $0x80 */
	0x0f, 0x0b,				/* ud2 */
	0xb8, PAUSE_32, 0, 0, 0,		/* pause: mov $pause, %eax */
	0xcd, 0x80,				/* int $0x80 */
	0x0f, 0x0b,				/* ud2 */
};

static struct {
	Elf32_Ehdr header;
	Elf32_Phdr segment;
	uint8_t code[sizeof(code)];
} program = {
	.header = {
		.e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS32, ELFDATA2LSB, EV_CURRENT },
		.e_type = ET_EXEC, .e_machine = EM_386, .e_version = EV_CURRENT,
		.e_entry = BASE + sizeof(Elf32_Ehdr) + sizeof(Elf32_Phdr),
		.e_phoff = sizeof(Elf32_Ehdr), .e_ehsize = sizeof(Elf32_Ehdr),
		.e_phentsize = sizeof(Elf32_Phdr), .e_phnum = 1,
	},
	.segment = {
		.p_type = PT_LOAD, .p_vaddr = BASE, .p_paddr = BASE,
		.p_filesz = sizeof(program), .p_memsz = sizeof(program),
		.p_flags = PF_R | PF_X, .p_align = 4096,
	},
};

static void exec_32(const char *argument)
{
	execl("./program32", "program32", argument, (char *)NULL);
	_exit(errno == ENOEXEC ? EXIT_SKIP : EXIT_FAIL);
}

static void in_user_mode(void)
{
	exec_32(NULL);
}

static void in_supervisor_mode(void)
{
	enter_supervisor(0);
	exec_32(NULL);
}

static void with_exec_kept(void)
{
	enter_supervisor(TL_SWITCH_EXEC | TL_SWITCH_CHILDREN);
	exec_32(NULL);
}

static void sleeping(void)
{
	exec_32("sleep");
}

int main(void)
{
	struct tl_switch request = { .size = sizeof(request), .mode = TL_MODE_SUPERVISOR };
	int file = MUST(open("program32", O_WRONLY | O_CREAT | O_TRUNC, 0755)), status;
	char name[64] = "";

	supervisor_need();
	memcpy(program.code, code, sizeof(code));
	CHECK_EQ(write(file, &program, sizeof(program)), sizeof(program));
	MUST(close(file));
	status = child_run(in_user_mode);
	if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP)
		SKIP("this kernel runs no 32-bit programs");
	CHECK_EXITED(status, CS_OF_USER_32);
	for (int i = 0; i < 20; i++) {
		CHECK_EXITED(child_run(in_supervisor_mode), CS_OF_USER_32);
		CHECK_EXITED(child_run(with_exec_kept), CS_OF_USER_32);
	}

	request.pid = child_start(sleeping);
	while (strncmp(name, "program32", 9)) {
		char path[64];

		snprintf(path, sizeof(path), "/proc/%d/comm", request.pid);
		CHECK(read_file(path, name, sizeof(name)) > 0);
	}
	wait_asleep(request.pid);
	CHECK_EQ(switch_ioctl(&request), -ENOEXEC);
	CHECK_EQ(request.refusal, TL_REFUSED_COMPAT);
	MUST(kill(request.pid, SIGKILL));
	CHECK_KILLED(child_wait(request.pid), SIGKILL);
	unlink("program32");
	return 0;
}
