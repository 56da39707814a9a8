// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writes thunks. This file owns every byte of code that probes add. It does not know how places are
 * found or patched.
 *
 * A place jumps to its own thunk, which does what the place did, stores one word and jumps back: 2
 * instructions more than before. Where interrupts may be disabled already it is 1 more, and a pushf
 * and a pop where no register has the flags; for a lock function's caller it is 1 more. %rax is
 * free at a cli and at a sti, as it was for the call that they replace; no other register is
 * changed. In a thunk for a sti the jump back is in the shadow of the sti: an interrupt finds the
 * CPU back in the kernel's code.
 */
#include <linux/build_bug.h>
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/string.h>

#include "compat/poke.h"
#include "probe/area.h"
#include "probe/layout.h"
#include "probe/thunk.h"

#define THUNK_BYTES_MAX 64
#define THUNK_ALIGNMENT 16
#define TRAP 0xcc

DEFINE_PER_CPU_ALIGNED(struct tlk_probe_cpu, tlk_probe_cpu);

static_assert(offsetof(struct tlk_probe_cpu, record.state) == X86_EFLAGS_IF);

struct thunk {
	u8 code[THUNK_BYTES_MAX];
	u32 length;
	const u8 *target;	/* where it will run */
};

static void emit(struct thunk *thunk, const void *bytes, size_t count)
{
	memcpy(thunk->code + thunk->length, bytes, count);
	thunk->length += count;
}

#define EMIT(thunk, ...)						\
do {									\
	const u8 bytes[] = { __VA_ARGS__ };				\
									\
	emit(thunk, bytes, sizeof(bytes));				\
} while (0)

static void emit_u32(struct thunk *thunk, u32 value)
{
	emit(thunk, &value, sizeof(value));
}

/* An address as instructions take it: 32 bits that are extended by their sign. */
static u32 short_address(const volatile void *address)
{
	return (u32)(unsigned long)address;
}

static bool is_short_address(unsigned long address)
{
	return (unsigned long)(s64)(s32)address == address;
}

static unsigned long cpu_member(size_t offset)
{
	return (unsigned long)(uintptr_t)&tlk_probe_cpu + offset;
}

/* movq $value, %gs:state */
static void emit_state(struct thunk *thunk, u32 value)
{
	EMIT(thunk, 0x65, 0x48, 0xc7, 0x04, 0x25);
	emit_u32(thunk, (u32)cpu_member(offsetof(struct tlk_probe_cpu, record.state)));
	emit_u32(thunk, value);
}

/* movq $value, %gs:nowhere(%rax), with %rax the interrupt flag of before */
static void emit_state_if_enabled(struct thunk *thunk, u32 value)
{
	EMIT(thunk, 0x65, 0x48, 0xc7, 0x80);
	emit_u32(thunk, (u32)cpu_member(offsetof(struct tlk_probe_cpu, nowhere)));
	emit_u32(thunk, value);
}

/* pushq depth(%rsp); popq %gs:nowhere(%rax) */
static void emit_caller_if_enabled(struct thunk *thunk, u32 depth)
{
	EMIT(thunk, 0xff, 0xb4, 0x24);
	emit_u32(thunk, depth);
	EMIT(thunk, 0x65, 0x8f, 0x80);
	emit_u32(thunk, (u32)cpu_member(offsetof(struct tlk_probe_cpu, nowhere)));
}

/* movl $value, %gs:entry */
static void emit_entry(struct thunk *thunk, u32 value)
{
	EMIT(thunk, 0x65, 0xc7, 0x04, 0x25);
	emit_u32(thunk, (u32)cpu_member(offsetof(struct tlk_probe_cpu, record.entry)));
	emit_u32(thunk, value);
}

/* incl counter */
static void emit_count(struct thunk *thunk, const u32 *counter)
{
	EMIT(thunk, 0xff, 0x04, 0x25);
	emit_u32(thunk, short_address(counter));
}

static void emit_jump(struct thunk *thunk, const u8 *to)
{
	u8 code[TLK_JMP_BYTES];

	tlk_jump(code, thunk->target + thunk->length, to);
	emit(thunk, code, sizeof(code));
}

/* Adds 1 if %rax has the interrupt flag; shifts the flag out of %rax. */
static void emit_count_if_enabled(struct thunk *thunk, const u32 *counter)
{
	EMIT(thunk, 0xc1, 0xe8, 9);				/* shr $9, %eax */
	EMIT(thunk, 0x01, 0x04, 0x25);				/* add %eax, counter */
	emit_u32(thunk, short_address(counter));
}

/* cli; leaves the interrupt flag of before, X86_EFLAGS_IF or 0, in %rax. */
static void emit_cli_and_flag(struct thunk *thunk, bool flags_in_rax)
{
	if (!flags_in_rax)
		EMIT(thunk, 0x9c);				/* pushf */
	EMIT(thunk, 0xfa);					/* cli */
	if (!flags_in_rax)
		EMIT(thunk, 0x58);				/* pop %rax */
	EMIT(thunk, 0x25);					/* and $flag, %eax */
	emit_u32(thunk, X86_EFLAGS_IF);
}

static void emit_disable(struct thunk *thunk, const struct tlk_site_code *site,
			 const u32 *counter)
{
	if (!site->may_nest) {
		EMIT(thunk, 0xfa);				/* cli */
		emit_state(thunk, short_address(site->at));
		if (counter)
			emit_count(thunk, counter);
		return;
	}
	emit_cli_and_flag(thunk, site->flags_in_rax);
	if (site->depth)
		emit_caller_if_enabled(thunk, site->depth - 1);
	else
		emit_state_if_enabled(thunk, short_address(site->at));
	if (counter)
		emit_count_if_enabled(thunk, counter);
}

static void emit_enable(struct thunk *thunk, const struct tlk_site_code *site)
{
	if (site->is_entry)
		emit_entry(thunk, TLK_ENTRY_CALL);
	emit_state(thunk, TLK_STATE_KERNEL);
	EMIT(thunk, 0xfb);					/* sti */
}

static void emit_leave_user(struct thunk *thunk, const struct tlk_site_code *site, u32 what)
{
	emit_entry(thunk, site->is_entry ? TLK_ENTRY_CALL : TLK_ENTRY_EXCEPTION);
	emit_state(thunk, what & TLK_PROBE_INTERRUPTS ? TLK_STATE_ENTERED : TLK_STATE_KERNEL);
}

static void make_thunk(struct thunk *thunk, const struct tlk_sites *sites, u32 index, u32 what)
{
	const struct tlk_site_code *site = &sites->code[index];

	switch (tlk_probe_sites[index].kind) {
	case TLK_SITE_DISABLE:
		emit_disable(thunk, site, what & TLK_PROBE_COUNTS ? &tlk_probe_sites[index].count
								  : NULL);
		break;
	case TLK_SITE_ENABLE:
		emit_enable(thunk, site);
		break;
	case TLK_SITE_ENTER_USER:
		emit_state(thunk, TLK_STATE_USER);
		break;
	case TLK_SITE_LEAVE_USER:
		emit_leave_user(thunk, site, what);
		break;
	}
	emit_jump(thunk, site->at + site->length);
}

void tlk_jump(u8 *code, const u8 *from, const u8 *to)
{
	const s32 distance = to - (from + TLK_JMP_BYTES);

	code[0] = 0xe9;
	memcpy(code + 1, &distance, sizeof(distance));
}

int tlk_thunks_write(const struct tlk_sites *sites, u32 what, u8 **thunks)
{
	u32 used = 0;
	u8 *area;
	u32 i;

	if (!is_short_address(cpu_member(0)) ||
	    !is_short_address((unsigned long)tlk_probe_sites))
		return -EOPNOTSUPP;
	area = kvmalloc(TLK_PROBE_AREA_BYTES, GFP_KERNEL);
	if (!area)
		return -ENOMEM;
	memset(area, TRAP, TLK_PROBE_AREA_BYTES);
	for (i = 0; i < sites->count && used + THUNK_BYTES_MAX <= TLK_PROBE_AREA_BYTES; i++) {
		struct thunk thunk = { .target = tlk_probe_area + used };

		make_thunk(&thunk, sites, i, what);
		memcpy(area + used, thunk.code, thunk.length);
		thunks[i] = tlk_probe_area + used;
		used += ALIGN(thunk.length, THUNK_ALIGNMENT);
	}
	if (i == sites->count)
		tlk_poke_dead(tlk_probe_area, area, TLK_PROBE_AREA_BYTES);
	kvfree(area);
	return i == sites->count ? 0 : -E2BIG;
}
