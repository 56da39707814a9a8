/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The ledger of mode transitions. It counts the executed instructions that cross between user and
 * kernel mode, or that cost as much, and the entries that no instruction asked for. It sees the
 * bytes of instructions and in which half of the address space blocks of code lie, and nothing
 * else.
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
	TLM_TO_KERNEL, /* mode changes, however they came about */
	TLM_TO_USER,
	TLM_SYSCALL_INTERRUPTED, /* SYSCALL, the first after user mode was interrupted */
	TLM_CROSSINGS,
	TLM_NO_CROSSING = TLM_CROSSINGS,
};

extern const char *const tlm_crossing_names[TLM_CROSSINGS];

struct tlm_ledger {
	uint64_t counts[TLM_CROSSINGS];
	enum tlm_crossing last; /* an entry or a return whose next block has not begun */
	bool kernel;		/* where the latest block was */
	uint32_t who;		/* a bit: whose code is running, as far as labels tell */
	uint32_t interrupted;	/* bits: whose user mode was, since their last SYSCALL */
};

/* What the instruction is; TLM_IRET_USER stands for any IRET. */
enum tlm_crossing tlm_ledger_classify(const uint8_t *code, size_t bytes);

/* An instruction of that class is executed. */
void tlm_ledger_instruction(struct tlm_ledger *ledger, enum tlm_crossing crossing);

/* A block begins after an entry or a return, or in the other half. */
void tlm_ledger_turn(struct tlm_ledger *ledger, bool kernel);

/* A block of code begins, in the kernel's half of the addresses or not. */
static inline void tlm_ledger_block(struct tlm_ledger *ledger, bool kernel)
{
	if (ledger->last != TLM_NO_CROSSING || ledger->kernel != kernel)
		tlm_ledger_turn(ledger, kernel);
}

/* Counting begins with this block. */
static inline void tlm_ledger_start(struct tlm_ledger *ledger, bool kernel)
{
	ledger->last = TLM_NO_CROSSING;
	ledger->kernel = kernel;
}

#endif
