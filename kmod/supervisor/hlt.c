// SPDX-License-Identifier: GPL-2.0-only
/*
 * Recognises programs whose C library is musl, which ends a program by hlt: a privileged
 * instruction, so a fault in user mode, but a pause at level 0, after which the program goes on
 * behind its smashed stack or heap. This file owns the pattern. It reads at most three pieces of a
 * process, each shorter than a page.
 *
 * A program is recognised by what is mapped. musl's start-up code is assembly in its sources
 * (arch/x86_64/crt_arch.h), so all compilers make the same bytes of it: it begins every program
 * that was linked with musl, and musl's dynamic linker. The process's own auxiliary vector says
 * where both are mapped. The process may change all of that at any time. That deceives only those
 * who trust the process as they trust the kernel, and the values serve only as addresses to copy
 * from.
 *
 * A halt cannot be made a fault afterwards. The interrupt that ends it finds a hlt's byte before
 * its return address, but so does one that comes after `jz 1f; hlt; 1:` has jumped, which is how
 * musl's checks look when all is well; or after any instruction whose last byte is that one.
 */
#include <linux/auxvec.h>
#include <linux/elf.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/string.h>

#include "supervisor/hlt.h"

/* xor %rbp, %rbp; mov %rsp, %rdi; lea DISPLACEMENT(%rip), %rsi; and $-16, %rsp; call */
static const u8 start_head[] = { 0x48, 0x31, 0xed, 0x48, 0x89, 0xe7, 0x48, 0x8d, 0x35 };
static const u8 start_tail[] = { 0x48, 0x83, 0xe4, 0xf0, 0xe8 };
#define DISPLACEMENT_BYTES 4

struct start_code {
	u8 head[sizeof(start_head)];
	u8 displacement[DISPLACEMENT_BYTES];
	u8 tail[sizeof(start_tail)];
};

/* Reads also what the process may only execute. */
static bool copy(struct task_struct *task, unsigned long address, void *to, int bytes)
{
	return access_process_vm(task, address, to, bytes, FOLL_FORCE) == bytes;
}

static bool is_musls_start(struct task_struct *task, unsigned long address)
{
	struct start_code code;

	return copy(task, address, &code, sizeof(code)) &&
	       !memcmp(code.head, start_head, sizeof(code.head)) &&
	       !memcmp(code.tail, start_tail, sizeof(code.tail));
}

/* Where the program starts and where its interpreter is mapped; 0 for what there is not. */
static void addresses_get(struct task_struct *task, unsigned long *entry, unsigned long *base)
{
	struct mm_struct *mm = get_task_mm(task);
	int i;

	*entry = 0;
	*base = 0;
	if (!mm)
		return;
	for (i = 0; i + 1 < AT_VECTOR_SIZE; i += 2) {
		unsigned long type = READ_ONCE(mm->saved_auxv[i]);
		unsigned long value = READ_ONCE(mm->saved_auxv[i + 1]);

		if (type == AT_NULL)
			break;
		if (type == AT_ENTRY)
			*entry = value;
		else if (type == AT_BASE)
			*base = value;
	}
	mmput(mm);
}

bool tlk_program_ends_by_hlt(struct task_struct *task)
{
	unsigned long entry, base;
	struct elf64_hdr header;

	addresses_get(task, &entry, &base);
	if (entry && is_musls_start(task, entry))
		return true;
	return base && copy(task, base, &header, sizeof(header)) &&
	       !memcmp(header.e_ident, ELFMAG, SELFMAG) &&
	       is_musls_start(task, base + header.e_entry);
}
