// SPDX-License-Identifier: GPL-2.0-only
/*
 * Recognises the instructions that the ledger counts by their encoding. It owns the table of
 * encodings and the state of crossings.
 */
#include "ledger.h"

const char *const tlm_crossing_names[TLM_CROSSINGS] = {
	[TLM_SYSCALL] = "syscall",
	[TLM_SYSENTER] = "sysenter",
	[TLM_INT] = "int",
	[TLM_SYSRET] = "sysret",
	[TLM_SYSEXIT] = "sysexit",
	[TLM_IRET_USER] = "iret_user",
	[TLM_IRET_KERNEL] = "iret_kernel",
	[TLM_INTERRUPT] = "interrupt",
	[TLM_SWAPGS] = "swapgs",
	[TLM_CR3] = "cr3",
	[TLM_CR4] = "cr4",
	[TLM_WRMSR] = "wrmsr",
	[TLM_INVLPG] = "invlpg",
	[TLM_INVPCID] = "invpcid",
	[TLM_VERW] = "verw",
	[TLM_TO_KERNEL] = "to_kernel",
	[TLM_TO_USER] = "to_user",
	[TLM_SYSCALL_INTERRUPTED] = "syscall_interrupted",
};

static bool is_prefix(uint8_t byte)
{
	switch (byte) {
	case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65:
	case 0x66: case 0x67: case 0xf0: case 0xf2: case 0xf3:
		return true;
	}
	return false;
}

static enum tlm_crossing of_register(uint8_t modrm, bool extended)
{
	if (extended) /* CR8 and above */
		return TLM_NO_CROSSING;
	switch (modrm >> 3 & 7) {
	case 3:
		return TLM_CR3;
	case 4:
		return TLM_CR4;
	}
	return TLM_NO_CROSSING;
}

/* `code` is what follows 0f; at least one byte. */
static enum tlm_crossing of_two_bytes(const uint8_t *code, size_t bytes, bool extended)
{
	uint8_t second = bytes > 1 ? code[1] : 0;
	unsigned int middle = second >> 3 & 7;
	bool memory = second >> 6 != 3;

	switch (code[0]) {
	case 0x05:
		return TLM_SYSCALL;
	case 0x07:
		return TLM_SYSRET;
	case 0x30:
		return TLM_WRMSR;
	case 0x34:
		return TLM_SYSENTER;
	case 0x35:
		return TLM_SYSEXIT;
	}
	if (bytes < 2)
		return TLM_NO_CROSSING;
	switch (code[0]) {
	case 0x00:
		return middle == 5 ? TLM_VERW : TLM_NO_CROSSING;
	case 0x01:
		if (second == 0xf8)
			return TLM_SWAPGS;
		return middle == 7 && memory ? TLM_INVLPG : TLM_NO_CROSSING;
	case 0x22:
		return of_register(second, extended);
	case 0x38:
		return second == 0x82 ? TLM_INVPCID : TLM_NO_CROSSING;
	}
	return TLM_NO_CROSSING;
}

enum tlm_crossing tlm_ledger_classify(const uint8_t *code, size_t bytes)
{
	bool extended = false;
	size_t at = 0;

	while (at < bytes && is_prefix(code[at]))
		at++;
	if (at < bytes && (code[at] & 0xf0) == 0x40)
		extended = code[at++] & 4;
	if (at == bytes)
		return TLM_NO_CROSSING;
	if (code[at] == 0xcf)
		return TLM_IRET_USER;
	if (code[at] == 0xcd)
		return TLM_INT;
	if (code[at] != 0x0f || at + 1 == bytes)
		return TLM_NO_CROSSING;
	return of_two_bytes(code + at + 1, bytes - at - 1, extended);
}

void tlm_ledger_instruction(struct tlm_ledger *ledger, enum tlm_crossing crossing)
{
	switch (crossing) {
	case TLM_IRET_USER: /* counted when it is known where it led */
	case TLM_SYSCALL:
	case TLM_SYSENTER:
	case TLM_INT:
	case TLM_SYSRET:
	case TLM_SYSEXIT:
		ledger->last = crossing;
		break;
	default:
		break;
	}
	if (crossing == TLM_SYSCALL && ledger->interrupted & ledger->who) {
		ledger->interrupted &= ~ledger->who;
		ledger->counts[TLM_SYSCALL_INTERRUPTED]++;
	}
	if (crossing != TLM_IRET_USER)
		ledger->counts[crossing]++;
}

void tlm_ledger_turn(struct tlm_ledger *ledger, bool kernel)
{
	if (ledger->last == TLM_IRET_USER) {
		ledger->counts[kernel ? TLM_IRET_KERNEL : TLM_IRET_USER]++;
	} else if (kernel && !ledger->kernel && ledger->last == TLM_NO_CROSSING) {
		ledger->counts[TLM_INTERRUPT]++;
		ledger->interrupted |= ledger->who;
	}
	if (kernel != ledger->kernel)
		ledger->counts[kernel ? TLM_TO_KERNEL : TLM_TO_USER]++;
	ledger->last = TLM_NO_CROSSING;
	ledger->kernel = kernel;
}
