/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A program that begins as musl's do is not switched, because hlt ends it: wherever the module is
 * told by the program's own auxiliary vector to look, as the program or as its interpreter, and
 * also in memory that can only be executed. A vector that names anything else, or nothing, changes
 * nothing, while the memory comes and goes as well; and who waits for a page that never comes can
 * be killed. tests/lab/supervisor/inside/musl_programs.py has real programs.
 */
#include <elf.h>
#include <linux/userfaultfd.h>
#include <sys/auxv.h>
#include <sys/prctl.h>

#include "supervisor.h"

#define PAGE 4096
#define ENTRY_OFFSET 512
#define TIMES 300

static const unsigned char start[] = {
	0x48, 0x31, 0xed, 0x48, 0x89, 0xe7, 0x48, 0x8d, 0x35, 1, 2, 3, 4,
	0x48, 0x83, 0xe4, 0xf0, 0xe8,
};

static volatile bool stop;

static void say(unsigned long entry, unsigned long base)
{
	unsigned long vector[] = { AT_BASE, base, AT_ENTRY, entry, AT_NULL, 0 };

	MUST(prctl(PR_SET_MM, PR_SET_MM_AUXV, vector, sizeof(vector), 0));
}

static unsigned char *pages(size_t count)
{
	return MUST(mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0));
}

static void refused(bool want, const char *what)
{
	struct tl_switch request = { .size = sizeof(request), .mode = TL_MODE_SUPERVISOR };
	long error = switch_ioctl(&request);

	if (want) {
		if (error != -ENOEXEC || request.refusal != TL_REFUSED_HLT)
			FAIL("%s: %ld, reason %u", what, error, request.refusal);
		request.flags = TL_SWITCH_ALLOW_HLT;
		error = switch_ioctl(&request);
	}
	if (error)
		FAIL("%s: %ld, reason %u", what, error, request.refusal);
	CHECK_EQ(raw_switch_user(0), 0);
	sys(SYS_getppid);
}

static void as_program(unsigned char *memory)
{
	memcpy(memory, start, sizeof(start));
	say((unsigned long)memory, 0);
	refused(true, "the program");
	MUST(mprotect(memory, PAGE, PROT_EXEC));
	refused(true, "a program that can only be executed");
	MUST(mprotect(memory, PAGE, PROT_READ | PROT_WRITE));
	for (size_t i = 0; i < sizeof(start); i++) {
		if (start[i] < 5)
			continue;	/* the displacement */
		memory[i]++;
		refused(false, "another program");
		memory[i]--;
	}
}

static void as_interpreter(unsigned char *memory)
{
	Elf64_Ehdr header = { .e_ident = ELFMAG, .e_entry = ENTRY_OFFSET };

	memset(memory, 0, PAGE);
	memcpy(memory, &header, sizeof(header));
	memcpy(memory + ENTRY_OFFSET, start, sizeof(start));
	say((unsigned long)say, (unsigned long)memory);
	refused(true, "the interpreter");
	memory[0] = 0;
	refused(false, "no ELF file");
	header.e_entry = -(unsigned long)memory - 8;	/* wraps around to the last addresses */
	memcpy(memory, &header, sizeof(header));
	refused(false, "an entry out of the address space");
}

static void at_bad_addresses(unsigned char *memory)
{
	const unsigned long addresses[] = {
		0, 8, (unsigned long)memory + 2 * PAGE - 4,
		0x7ffffffff000 - 1, 1ul << 47, 1ul << 63,
		0xffffffff81000000, 0xffffffffff600000, -(unsigned long)PAGE, -1ul,
	};
	const unsigned long nothing[2] = { AT_NULL };

	MUST(munmap(memory + 2 * PAGE, PAGE));
	for (size_t i = 0; i < sizeof(addresses) / sizeof(*addresses); i++) {
		say(addresses[i], addresses[i]);
		refused(false, "a bad address");
	}
	MUST(prctl(PR_SET_MM, PR_SET_MM_AUXV, nothing, sizeof(nothing), 0));
	refused(false, "an empty vector");
}

static void *come_and_go(void *address)
{
	while (!stop) {
		unsigned char *memory = mmap(address, PAGE, PROT_READ | PROT_WRITE,
					     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

		memcpy(memory, start, sizeof(start));
		munmap(memory, PAGE);
	}
	return NULL;
}

static void while_it_comes_and_goes(unsigned char *memory)
{
	unsigned int answers[2] = { 0 };
	pthread_t thread;

	say((unsigned long)memory, (unsigned long)memory);
	CHECK_EQ(pthread_create(&thread, NULL, come_and_go, memory), 0);
	for (int i = 0; i < TIMES; i++) {
		struct tl_switch request = { .size = sizeof(request), .mode = TL_MODE_SUPERVISOR };
		long error = switch_ioctl(&request);

		CHECK(error == 0 || (error == -ENOEXEC && request.refusal == TL_REFUSED_HLT));
		answers[error != 0]++;
		if (!error)
			CHECK_EQ(raw_switch_user(0), 0);
	}
	stop = true;
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(answers[0] + answers[1], TIMES);
}

/* A page whose fault nobody answers: kernels give up at once, or wait until they are killed. */
static void for_ever(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	unsigned char *memory = pages(1);
	long fd = sys(SYS_userfaultfd, O_CLOEXEC);
	int status;
	pid_t pid;

	if (fd == -ENOSYS)
		return;
	CHECK(fd >= 0);
	MUST(ioctl((int)fd, UFFDIO_API, &api));
	range.range.start = (unsigned long)memory;
	range.range.len = PAGE;
	MUST(ioctl((int)fd, UFFDIO_REGISTER, &range));
	say((unsigned long)memory, 0);
	pid = MUST(fork());
	if (pid == 0)
		_exit(raw_switch_supervisor(getppid()) ? 3 : 0);
	sleep_ms(200);
	MUST(kill(pid, SIGKILL));
	status = child_wait(pid);
	if (WIFEXITED(status))
		CHECK_EXITED(status, 0);
	else
		CHECK_KILLED(status, SIGKILL);
	close((int)fd);
}

int main(void)
{
	unsigned char *memory = pages(3);

	supervisor_need();
	as_program(memory);
	as_interpreter(memory);
	at_bad_addresses(memory);
	while_it_comes_and_goes(memory);
	for_ever();
	return 0;
}
