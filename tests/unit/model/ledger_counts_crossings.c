/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Instructions that cross between modes are known by their encoding, prefixes or not, and entries
 * and returns are counted by where the code goes on.
 */
#include "check.h"
#include "ledger.h"

static enum tlm_crossing of(const char *code, size_t bytes)
{
	return tlm_ledger_classify((const uint8_t *)code, bytes);
}

#define OF(code) of(code, sizeof(code) - 1)

static void instructions(void)
{
	CHECK_EQ(OF("\x0f\x05"), TLM_SYSCALL);
	CHECK_EQ(OF("\x48\x0f\x07"), TLM_SYSRET);
	CHECK_EQ(OF("\x0f\x34"), TLM_SYSENTER);
	CHECK_EQ(OF("\x0f\x35"), TLM_SYSEXIT);
	CHECK_EQ(OF("\xcd\x80"), TLM_INT);
	CHECK_EQ(OF("\x48\xcf"), TLM_IRET_USER);
	CHECK_EQ(OF("\xcf"), TLM_IRET_USER);
	CHECK_EQ(OF("\x0f\x01\xf8"), TLM_SWAPGS);
	CHECK_EQ(OF("\x0f\x22\xd8"), TLM_CR3);
	CHECK_EQ(OF("\x41\x0f\x22\xdc"), TLM_CR3); /* from r12 */
	CHECK_EQ(OF("\x0f\x22\xe0"), TLM_CR4);
	CHECK_EQ(OF("\x44\x0f\x22\xc0"), TLM_NO_CROSSING); /* CR8 */
	CHECK_EQ(OF("\x0f\x30"), TLM_WRMSR);
	CHECK_EQ(OF("\x0f\x01\x38"), TLM_INVLPG);
	CHECK_EQ(OF("\x66\x0f\x38\x82\x04\x24"), TLM_INVPCID);
	CHECK_EQ(OF("\x0f\x00\x2c\x25\x00\x00\x00\x00"), TLM_VERW);
	CHECK_EQ(OF("\x0f\x01\xf9"), TLM_NO_CROSSING); /* rdtscp */
	CHECK_EQ(OF("\x0f\x20\xd8"), TLM_NO_CROSSING); /* reads CR3 */
	CHECK_EQ(OF("\x90"), TLM_NO_CROSSING);
	CHECK_EQ(OF("\x0f"), TLM_NO_CROSSING);
	CHECK_EQ(OF("\x0f\x01"), TLM_NO_CROSSING);
	CHECK_EQ(OF("\x48"), TLM_NO_CROSSING);
	CHECK_EQ(OF(""), TLM_NO_CROSSING);
}

static void transitions(void)
{
	struct tlm_ledger ledger = { .counts = { 0 } };

	tlm_ledger_start(&ledger, false);
	tlm_ledger_block(&ledger, false);
	tlm_ledger_instruction(&ledger, TLM_SYSCALL);
	tlm_ledger_block(&ledger, true);
	tlm_ledger_block(&ledger, true);
	tlm_ledger_instruction(&ledger, TLM_SYSRET);
	tlm_ledger_block(&ledger, false);
	CHECK_EQ(ledger.counts[TLM_INTERRUPT], 0);
	tlm_ledger_block(&ledger, true); /* nothing asked for it */
	CHECK_EQ(ledger.counts[TLM_INTERRUPT], 1);
	tlm_ledger_instruction(&ledger, TLM_IRET_USER);
	CHECK_EQ(ledger.counts[TLM_IRET_USER], 0); /* not before it is known where to */
	tlm_ledger_block(&ledger, true);
	tlm_ledger_instruction(&ledger, TLM_IRET_USER);
	tlm_ledger_block(&ledger, false);
	CHECK_EQ(ledger.counts[TLM_IRET_KERNEL], 1);
	CHECK_EQ(ledger.counts[TLM_IRET_USER], 1);
	CHECK_EQ(ledger.counts[TLM_SYSCALL], 1);
	CHECK_EQ(ledger.counts[TLM_SYSRET], 1);
	CHECK_EQ(ledger.counts[TLM_INTERRUPT], 1);
}

/* Whose system calls find their user mode interrupted since the last one. */
static void interrupted_calls(void)
{
	struct tlm_ledger ledger = { .who = 1 };
	int i;

	tlm_ledger_start(&ledger, false);
	tlm_ledger_instruction(&ledger, TLM_SYSCALL);
	tlm_ledger_block(&ledger, true);
	CHECK_EQ(ledger.counts[TLM_SYSCALL_INTERRUPTED], 0);
	tlm_ledger_block(&ledger, false); /* by an ordinary jump, as in supervisor mode */
	for (i = 0; i < 2; i++) { /* two interrupts */
		tlm_ledger_block(&ledger, true);
		tlm_ledger_instruction(&ledger, TLM_IRET_USER);
		tlm_ledger_block(&ledger, false);
	}
	ledger.who = 2; /* another's call */
	tlm_ledger_instruction(&ledger, TLM_SYSCALL);
	tlm_ledger_block(&ledger, true);
	tlm_ledger_instruction(&ledger, TLM_SYSRET);
	tlm_ledger_block(&ledger, false);
	CHECK_EQ(ledger.counts[TLM_SYSCALL_INTERRUPTED], 0);
	ledger.who = 1;
	for (i = 0; i < 2; i++) { /* and two calls: the first is */
		tlm_ledger_instruction(&ledger, TLM_SYSCALL);
		tlm_ledger_block(&ledger, true);
		tlm_ledger_instruction(&ledger, TLM_SYSRET);
		tlm_ledger_block(&ledger, false);
	}
	CHECK_EQ(ledger.counts[TLM_SYSCALL_INTERRUPTED], 1);
	CHECK_EQ(ledger.counts[TLM_SYSCALL], 4);
	CHECK_EQ(ledger.counts[TLM_INTERRUPT], 2);
	CHECK_EQ(ledger.counts[TLM_TO_KERNEL], 6);
	CHECK_EQ(ledger.counts[TLM_TO_USER], 6);
}

int main(void)
{
	instructions();
	transitions();
	interrupted_calls();
	return 0;
}
