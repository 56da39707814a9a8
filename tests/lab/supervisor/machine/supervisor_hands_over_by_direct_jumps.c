// SPDX-License-Identifier: GPL-2.0-only
/*
 * The module's entry hands calls to the kernel's entry by direct jumps. On a machine with KVM other
 * processes' calls may come through here, before the kernel has cleared the branch history: an
 * indirect jump could be steered by whoever ran before.
 */
#include <elf.h>

#include "supervisor.h"

#define JUMP 0xe9		/* jmp rel32 */
#define WAY_BYTES 256		/* from the symbol to the jump, at most */
#define JUMPS 2			/* the second is a static call's trampoline */
#define SEGMENTS 64

static const uint8_t swapgs[] = { 0x0f, 0x01, 0xf8 };

static int kcore;
static Elf64_Phdr segments[SEGMENTS];
static int segment_count;

static void kcore_open(void)
{
	Elf64_Ehdr head;

	kcore = open("/proc/kcore", O_RDONLY);
	if (kcore < 0)
		SKIP("/proc/kcore: %s: the kernel's code cannot be read", strerror(errno));
	CHECK_EQ(pread(kcore, &head, sizeof(head), 0), (long)sizeof(head));
	CHECK_WITHIN(head.e_phnum, 1, SEGMENTS);
	segment_count = head.e_phnum;
	CHECK_EQ(pread(kcore, segments, segment_count * sizeof(*segments), (off_t)head.e_phoff),
		 (long)(segment_count * sizeof(*segments)));
}

static void kernel_read(uint64_t address, void *to, size_t size)
{
	for (int i = 0; i < segment_count; i++) {
		const Elf64_Phdr *segment = &segments[i];

		if (segment->p_type != PT_LOAD || address < segment->p_vaddr ||
		    address - segment->p_vaddr + size > segment->p_memsz)
			continue;
		CHECK_EQ(pread(kcore, to, size,
			       (off_t)(segment->p_offset + address - segment->p_vaddr)),
			 (long)size);
		return;
	}
	FAIL("/proc/kcore has no 0x%lx", address);
}

static uint64_t symbol(const char *wanted)
{
	FILE *file = fopen("/proc/kallsyms", "r");
	char line[512], name[256];
	unsigned long address, found = 0;

	CHECK(file != NULL);
	while (!found && fgets(line, sizeof(line), file))
		if (sscanf(line, "%lx %*c %255s", &address, name) == 2 && !strcmp(name, wanted))
			found = address;
	fclose(file);
	if (!found)
		FAIL("/proc/kallsyms has no %s", wanted);
	return found;
}

/* Follows what stands behind the first swapgs after `from`. */
static void check_way(const char *from)
{
	uint64_t at = symbol(from), kernel_entry = symbol("entry_SYSCALL_64");
	uint8_t code[WAY_BYTES];
	const uint8_t *last;

	kernel_read(at, code, sizeof(code));
	last = memmem(code, sizeof(code), swapgs, sizeof(swapgs));
	CHECK(last != NULL);
	at += last - code + sizeof(swapgs);
	for (int jumps = 0; at != kernel_entry; jumps++) {
		uint8_t opcode;
		int32_t distance;

		kernel_read(at, &opcode, sizeof(opcode));
		if (opcode != JUMP || jumps == JUMPS)
			FAIL("%s: 0x%02x at 0x%lx after %d jumps: no direct way to 0x%lx", from,
			     opcode, at, jumps, kernel_entry);
		kernel_read(at + 1, &distance, sizeof(distance));
		at += 1 + sizeof(distance) + distance;
	}
}

int main(void)
{
	supervisor_need();
	kcore_open();
	check_way("tlk_supervisor_return_jump");	/* what follows it hands calls over */
	check_way("tlk_supervisor_hand_over");
	return 0;
}
