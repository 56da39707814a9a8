/* SPDX-License-Identifier: GPL-2.0-only
 *
 * The ledger of mode transitions: which instructions were executed that cross between user and
 * kernel mode or cost as much, and which entries no instruction asked for. It sees the bytes of
 * instructions and the half of the address space that blocks of code lie in; nothing else.
 */
#ifndef TRAPLESS_MODEL_LEDGER_H
#define TRAPLESS_MODEL_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tlm_crossing {
	TLM_SYSCALL,
	TLM_SYSENTER,
	TLM_INT,
	TLM_SYSRET,
	TLM_SYSEXIT,
	TLM_IRET_USER,	 /* returns to user mode by IRET */
	TLM_IRET_KERNEL, /* returns within the kernel: an interrupt or exception was taken there */
	TLM_INTERRUPT,	 /* user mode left without an instruction for it */
	TLM_SWAPGS,
	TLM_CR3,
	TLM_CR4,
	TLM_WRMSR,
	TLM_INVLPG,
	TLM_INVPCID,
	TLM_VERW,
	TLM_CROSSINGS,
	TLM_NO_CROSSING = TLM_CROSSINGS,
};

extern const char *const tlm_crossing_names[TLM_CROSSINGS];

struct tlm_ledger {
	uint64_t counts[TLM_CROSSINGS];
	enum tlm_crossing last; /* an entry or a return whose next block has not begun */
	bool kernel;		/* where the latest block was */
};

/* What the instruction is; TLM_IRET_USER stands for any IRET. */
enum tlm_crossing tlm_ledger_classify(const uint8_t *code, size_t bytes);

/* An instruction of that class is executed. */
void tlm_ledger_instruction(struct tlm_ledger *ledger, enum tlm_crossing crossing);

/* A block of code begins, in the kernel's half of the addresses or not. */
static inline void tlm_ledger_block(struct tlm_ledger *ledger, bool kernel)
{
	if (ledger->last == TLM_NO_CROSSING && ledger->kernel == kernel)
		return;
	if (ledger->last == TLM_IRET_USER)
		ledger->counts[kernel ? TLM_IRET_KERNEL : TLM_IRET_USER]++;
	else if (kernel && !ledger->kernel && ledger->last == TLM_NO_CROSSING)
		ledger->counts[TLM_INTERRUPT]++;
	ledger->last = TLM_NO_CROSSING;
	ledger->kernel = kernel;
}

/* Counting begins with this block. */
static inline void tlm_ledger_start(struct tlm_ledger *ledger, bool kernel)
{
	ledger->last = TLM_NO_CROSSING;
	ledger->kernel = kernel;
}

#endif
