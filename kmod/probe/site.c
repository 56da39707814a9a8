// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finds where the kernel disables and enables interrupts, and where it enters and leaves user mode.
 * This file owns the search and every check of a place. It changes nothing.
 *
 * Interrupts: a kernel that can run under Xen has each cli and sti as a call that was replaced at
 * boot by the instruction and a NOP of five bytes: six bytes in all, room for a jump. The list of
 * them was in memory that is freed after boot, so they are found again. All code of a function that
 * has these bytes somewhere is decoded from its start, which tells a cli from the same byte inside
 * another instruction. A place is taken only if no jump leads into the six bytes and the NOP
 * belongs to no jump label and no static call.
 *
 * User mode: where the kernel can track contexts (for nohz_full) but does not, each way into and
 * out of user mode has a jump label, a NOP, and a piece of code behind it that calls the tracking
 * and never runs. The label's table says where they are.
 */
#include <linux/kallsyms.h>
#include <linux/kernel.h>
#include <linux/sched.h>
#include <linux/string.h>

#include "compat/poke.h"
#include "probe/layout.h"
#include "probe/site.h"

#define CLI 0xfa
#define STI 0xfb
#define INT3 0xcc
#define PUSHF 0x9c
#define POP_RAX 0x58
#define MOV_EDI 0xbf
#define CALL 0xe8
#define JMP 0xe9
#define NOP_BYTES 5
#define INTERRUPT_SITE_BYTES (1 + NOP_BYTES)
#define FUNCTION_SITES_MAX 64
#define PUSHF_DISTANCE_MAX 96	/* from the pushf of local_irq_save() to its cli */
#define BEFORE_SITE 4	/* bytes from which the jump of an optimised kprobe reaches a place */

static const u8 nop2[2] = { 0x66, 0x90 };
static const u8 nop5[NOP_BYTES] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };

struct tlk_probe_site tlk_probe_sites[TLK_SITES_MAX];

/* One function while it is decoded. */
struct walk {
	const u8 *start;
	const u8 *end;
	const u8 *pushf;	/* the last one */
	bool flags_in_rax;
	bool popped;		/* ... by the instruction right behind it */
	bool is_straight;	/* nothing so far jumped or called */
	bool is_lock;
	u16 depth;		/* bytes on the stack since the start, return address included */
	u32 first;		/* site of this function */
};

/*
 * Interrupt handlers take locks, too. A cli is recorded only where interrupts were enabled before:
 * thunks for lock functions and local_irq_save() ask for that. Elsewhere a cli means that they
 * were.
 *
 * The functions named here have a cli right before an iret, which restores what was interrupted
 * without an instruction that has a probe. Such a cli is not recorded, or interrupts would seem to
 * stay disabled.
 */
static const char *const before_iret[] = {
	"exc_", "__do_softirq", "handle_softirqs", "do_error_trap", "do_trap", "math_error",
	"irqentry_exit", "raw_irqentry_exit", "preempt_schedule_irq", "handle_bug",
	"fixup_bad_iret", "do_int3", "handle_invalid_op", "__irq_exit_rcu", "irq_exit",
};

static bool is_before_iret(const char *name)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(before_iret); i++) {
		if (!strncmp(name, before_iret[i], strlen(before_iret[i])))
			return true;
	}
	return false;
}

static bool may_be_site(const u8 *at)
{
	if ((at[0] != CLI && at[0] != STI) || memcmp(at + 1, nop5, NOP_BYTES))
		return false;
	return !(at[-3] == 0xf3 && at[-2] == 0x0f && at[-1] == 0x1e);	/* endbr64 */
}

static bool is_branch(const struct insn *insn)
{
	const u8 *opcode = insn->opcode.bytes;

	if (opcode[0] == 0x0f)
		return (opcode[1] & 0xf0) == 0x80;
	return (opcode[0] & 0xf0) == 0x70 || (opcode[0] & 0xfc) == 0xe0 || opcode[0] == CALL ||
	       opcode[0] == JMP || opcode[0] == 0xeb;
}

/* Does an instruction between the pushf and the cli of local_irq_save() leave %rax alone? */
static bool keeps_rax(const struct insn *insn)
{
	const u8 opcode = insn->opcode.bytes[0];
	const u8 modrm = insn->modrm.bytes[0];
	const bool is_rax = (modrm & 0xc7) == 0xc0 && !X86_REX_B(insn->rex_prefix.value);

	switch (opcode) {
	case 0x50 ... 0x57:			/* push */
	case 0x90:				/* nop */
		return true;
	case 0x0f:
		return insn->opcode.bytes[1] == 0x1f;
	case 0x89:				/* mov register to register or memory */
		return !is_rax;
	case 0x8b:				/* mov to register */
	case 0x8d:				/* lea */
		return (modrm & 0x38) || X86_REX_R(insn->rex_prefix.value);
	default:
		return false;
	}
}

static void follow_stack(struct walk *walk, const struct insn *insn)
{
	const u8 opcode = insn->opcode.bytes[0];
	const u8 modrm = insn->modrm.bytes[0];

	if (is_branch(insn))
		walk->is_straight = false;
	else if ((opcode & 0xf8) == 0x50 || opcode == PUSHF)
		walk->depth += 8;
	else if ((opcode & 0xf8) == 0x58)
		walk->depth -= 8;
	else if (opcode == 0x83 && modrm == 0xec)
		walk->depth += insn->immediate.value;
	else if (opcode == 0x81 && modrm == 0xec)
		walk->is_straight = false;
}

static void follow_flags(struct walk *walk, const struct insn *insn, const u8 *at)
{
	const u8 opcode = insn->opcode.bytes[0];

	if (opcode == PUSHF)
		walk->pushf = at;
	else if (opcode == POP_RAX && insn->length == 1 && walk->pushf == at - 1)
		walk->flags_in_rax = true;
	else if (!keeps_rax(insn))
		walk->flags_in_rax = false;
}

static void add_interrupt_site(struct tlk_sites *sites, const struct walk *walk, const u8 *at)
{
	struct tlk_site_code *code = &sites->code[sites->count];

	if (sites->count == TLK_SITES_MAX || sites->count - walk->first == FUNCTION_SITES_MAX) {
		sites->left_out++;
		return;
	}
	*code = (struct tlk_site_code){
		.at = (u8 *)at,
		.length = INTERRUPT_SITE_BYTES,
		.may_nest = walk->is_lock ||
			    (walk->pushf && at - walk->pushf < PUSHF_DISTANCE_MAX),
		.flags_in_rax = walk->flags_in_rax,
		.depth = walk->is_lock && walk->is_straight ? walk->depth + 1 : 0,
	};
	tlk_probe_sites[sites->count].kind = *at == CLI ? TLK_SITE_DISABLE : TLK_SITE_ENABLE;
	sites->count++;
}

static void drop_site(struct tlk_sites *sites, u32 index)
{
	const u32 behind = sites->count - index - 1;

	memmove(&sites->code[index], &sites->code[index + 1], behind * sizeof(sites->code[0]));
	memmove(&tlk_probe_sites[index], &tlk_probe_sites[index + 1],
		behind * sizeof(tlk_probe_sites[0]));
	sites->count--;
	sites->left_out++;
}

/* A jump to between the pushf and the cli brings another %rax; one into a site forbids it. */
static void heed_jump(struct tlk_sites *sites, const struct walk *walk, const u8 *target)
{
	u32 i;

	for (i = walk->first; i < sites->count; i++) {
		struct tlk_site_code *code = &sites->code[i];

		if (target > code->at && target < code->at + code->length)
			drop_site(sites, i--);
		else if (target <= code->at && target > code->at - PUSHF_DISTANCE_MAX)
			code->flags_in_rax = false;
	}
}

static void heed_jumps(struct tlk_sites *sites, const struct walk *walk)
{
	struct insn insn;
	const u8 *at;

	for (at = walk->start; at < walk->end; at += insn.length) {
		if (tlk_decode(&insn, at) < 0)
			return;		/* has been decoded before: cannot be */
		if (is_branch(&insn) && insn.opcode.bytes[0] != CALL)
			heed_jump(sites, walk, at + insn.length + insn.immediate.value);
	}
}

/* A breakpoint or jump stands there, in place of an instruction that one has to know. */
static bool is_hidden(const u8 *at)
{
	return (*at == INT3 || *at == JMP) && tlk_kprobe_within(at, 1);
}

static void add_sites_of_function(struct tlk_sites *sites, struct walk *walk)
{
	struct insn insn;
	const u8 *at;

	for (at = walk->start; at < walk->end; at += insn.length) {
		if (is_hidden(at) || tlk_decode(&insn, at) < 0) {
			sites->left_out += sites->count - walk->first + 1;
			sites->count = walk->first;
			return;
		}
		if (insn.length == 1 && walk->end - at >= INTERRUPT_SITE_BYTES && may_be_site(at))
			add_interrupt_site(sites, walk, at);
		follow_stack(walk, &insn);
		follow_flags(walk, &insn, at);
	}
	heed_jumps(sites, walk);
}

/* Looks at the function at an address and returns the address after it. */
static const u8 *look_at_function(struct tlk_sites *sites, const u8 *at)
{
	struct walk walk = { .is_straight = true, .depth = 0, .first = sites->count };
	char name[KSYM_SYMBOL_LEN];
	unsigned long size, offset;

	if (!tlk_function_at((unsigned long)at, &size, &offset))
		return at + 1;
	walk.start = at - offset;
	walk.end = min(walk.start + size, (const u8 *)tlk_text.end);
	sprint_symbol_no_offset(name, (unsigned long)walk.start);
	if (is_before_iret(name))
		return walk.end;
	walk.is_lock = !strncmp(name, "_raw_", 5) && strstr(name, "lock_irq");
	add_sites_of_function(sites, &walk);
	return max(walk.end, at + 1);
}

static void find_interrupt_sites(struct tlk_sites *sites)
{
	const u8 *end = tlk_text.end - INTERRUPT_SITE_BYTES;
	const u8 *at = tlk_text.start + 3;

	while (at < end) {
		at = may_be_site(at) ? look_at_function(sites, at) : at + 1;
		if (!((unsigned long)at & 0xffff))
			cond_resched();
	}
}

/* The site with this address among those of interrupts, which are in ascending order. */
static struct tlk_site_code *site_at(struct tlk_sites *sites, u32 count, const u8 *at)
{
	u32 low = 0, high = count;

	while (low < high) {
		const u32 middle = (low + high) / 2;

		if (sites->code[middle].at < at)
			low = middle + 1;
		else
			high = middle;
	}
	return low < count && sites->code[low].at == at ? &sites->code[low] : NULL;
}

static void drop_site_with_nop_at(struct tlk_sites *sites, const u8 *nop)
{
	const struct tlk_site_code *code = site_at(sites, sites->count, nop - 1);

	if (code)
		drop_site(sites, code - sites->code);
}

/* Drops what else the kernel may change at any time: the NOPs of jump labels and static calls. */
static void drop_patchable_places(struct tlk_sites *sites)
{
	const struct jump_entry *entry;
	const s32 *call;

	for (entry = tlk_text.jumps; entry < tlk_text.jumps_end; entry++)
		drop_site_with_nop_at(sites, (const u8 *)jump_entry_code(entry));
	for (call = tlk_text.calls; call + 1 < tlk_text.calls_end; call += 2)
		drop_site_with_nop_at(sites, (const u8 *)call + *call);
}

/*
 * A kprobe that is off leaves no trace in the code, but has a copy of an instruction. The kernel
 * takes none at a jump label.
 */
static bool has_kprobe(const struct tlk_site_code *code)
{
	return tlk_kprobe_within(code->at - BEFORE_SITE, BEFORE_SITE + code->length);
}

static void drop_places_of_kprobes(struct tlk_sites *sites)
{
	u32 i;

	for (i = 0; i < sites->count; i++) {
		if (has_kprobe(&sites->code[i]))
			drop_site(sites, i--);
	}
}

static bool is_text(const u8 *at, size_t bytes)
{
	return at >= tlk_text.start && at + bytes <= tlk_text.end;
}

/* What the code at a place calls (mov $context, %edi and a call or a jump), or NULL. */
static void *tracking_called_by(const u8 *code)
{
	s32 distance;

	if (!is_text(code, 10) || code[0] != MOV_EDI || (code[5] != CALL && code[5] != JMP))
		return NULL;
	memcpy(&distance, code + 6, sizeof(distance));
	return (void *)(code + 10 + distance);
}

static u8 label_bytes(const u8 *at)
{
	if (!is_text(at, NOP_BYTES))
		return 0;
	if (!memcmp(at, nop5, sizeof(nop5)))
		return sizeof(nop5);
	return memcmp(at, nop2, sizeof(nop2)) ? 0 : sizeof(nop2);
}

static bool is_detour_taken(const struct tlk_sites *sites, u32 interrupts, const u8 *detour)
{
	u32 i;

	for (i = interrupts; i < sites->count; i++) {
		if (sites->code[i].detour == detour)
			return true;
	}
	return false;
}

/* A way into or out of user mode that cannot be patched is an error: records would be wrong. */
static int add_context_site(struct tlk_sites *sites, u32 interrupts, u8 *at, u8 *target)
{
	const void *called = tracking_called_by(target);
	struct tlk_site_code *behind;
	bool leaves;
	u8 length;

	if (!called || (called != tlk_text.user_enter && called != tlk_text.user_exit))
		return 0;
	length = label_bytes(at);
	if (!length || sites->count == TLK_SITES_MAX || is_detour_taken(sites, interrupts, target))
		return -EOPNOTSUPP;
	leaves = called == tlk_text.user_exit;
	behind = site_at(sites, interrupts, at + length);
	if (leaves && behind && tlk_probe_sites[behind - sites->code].kind == TLK_SITE_ENABLE) {
		behind->is_entry = true;	/* the sti says as much, one instruction later */
		return 0;
	}
	sites->code[sites->count] = (struct tlk_site_code){
		.at = at,
		.length = length,
		.is_entry = leaves && at[length] == STI,
		.detour = length < NOP_BYTES ? target : NULL,
	};
	tlk_probe_sites[sites->count++].kind = leaves ? TLK_SITE_LEAVE_USER : TLK_SITE_ENTER_USER;
	return 0;
}

static int find_context_sites(struct tlk_sites *sites, const char **why)
{
	const u32 interrupts = sites->count;
	struct jump_entry *entry;
	int error = 0;

	if (!tlk_text.context_key || !tlk_text.user_enter || !tlk_text.user_exit) {
		*why = "it has no places that tell user mode (needs CONFIG_CONTEXT_TRACKING_USER)";
		return -EOPNOTSUPP;
	}
	if (static_key_enabled(tlk_text.context_key)) {
		*why = "it tracks user mode itself (boot parameter nohz_full)";
		return -EOPNOTSUPP;
	}
	for (entry = tlk_text.jumps; entry < tlk_text.jumps_end && !error; entry++) {
		if (jump_entry_key(entry) == tlk_text.context_key)
			error = add_context_site(sites, interrupts, (u8 *)jump_entry_code(entry),
						 (u8 *)jump_entry_target(entry));
	}
	if (error || sites->count == interrupts) {
		*why = "its ways into and out of user mode do not have the form that is known";
		return -EOPNOTSUPP;
	}
	return 0;
}

int tlk_sites_find(struct tlk_sites *sites, u32 what, const char **why)
{
	int error;
	u32 i;

	sites->count = 0;
	sites->left_out = 0;
	memset(tlk_probe_sites, 0, sizeof(tlk_probe_sites));
	if (what & TLK_PROBE_INTERRUPTS) {
		find_interrupt_sites(sites);
		drop_patchable_places(sites);
		drop_places_of_kprobes(sites);
		if (!sites->count) {
			*why = "its cli and sti leave no room for a jump (CONFIG_PARAVIRT_XXL)";
			return -EOPNOTSUPP;
		}
	}
	error = find_context_sites(sites, why);
	for (i = 0; i < sites->count; i++)
		tlk_probe_sites[i].address = (unsigned long)sites->code[i].at;
	return error;
}

bool tlk_sites_are_unchanged(const struct tlk_sites *sites)
{
	u32 i;

	for (i = 0; i < sites->count; i++) {
		const struct tlk_site_code *code = &sites->code[i];
		const u32 kind = tlk_probe_sites[i].kind;
		bool same;

		if (kind == TLK_SITE_DISABLE || kind == TLK_SITE_ENABLE)
			same = may_be_site(code->at) &&
			       *code->at == (kind == TLK_SITE_DISABLE ? CLI : STI);
		else
			same = label_bytes(code->at) == code->length &&
			       (!code->detour || tracking_called_by(code->detour));
		if (!same)
			return false;
	}
	return true;
}
