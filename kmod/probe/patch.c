// SPDX-License-Identifier: GPL-2.0-only
/*
 * Changes places of the kernel's code, and changes them back. This file owns the record of what was
 * where. compat/poke.c owns how a change is made.
 *
 * A place of two bytes has no room for a jump to a thunk: it jumps to a piece of code nearby that
 * never runs, and that one to the thunk. So detours are made first and undone last.
 */
#include <linux/errno.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/smp.h>
#include <linux/string.h>

#include "compat/poke.h"
#include "probe/patch.h"
#include "probe/thunk.h"

#define SHORT_JMP 0xeb
#define SHORT_JMP_BYTES 2
#define JMP 0xe9
#define NOP 0x90
#define JMP_PREFIX 0x3e	/* %ds: no operand of a jump is in memory */

/* A place needs two changes at most: with a detour, a prefix or a byte that is left. */
static struct tlk_patch patches[2 * TLK_SITES_MAX];
static u32 patch_count;

static struct tlk_patch *prepare(enum tlk_patch_stage stage, u8 *at, const void *after, u8 length,
				 const void *meanwhile)
{
	struct tlk_patch *patch = &patches[patch_count++];

	*patch = (struct tlk_patch){ .at = at, .length = length, .stage = stage };
	memcpy(patch->before, at, length);
	memcpy(patch->after, after, length);
	memcpy(patch->meanwhile, meanwhile, sizeof(patch->meanwhile));
	return patch;
}

static void prepare_jump(enum tlk_patch_stage stage, u8 *at, const u8 *to)
{
	u8 code[TLK_JMP_BYTES];

	tlk_jump(code, at, to);
	prepare(stage, at, code, sizeof(code), code);
}

static void prepare_detour(const struct tlk_site_code *site, const u8 *thunk)
{
	const u8 code[TLK_JMP_BYTES] = {
		SHORT_JMP, site->detour - (site->at + SHORT_JMP_BYTES),
	};

	prepare_jump(TLK_PATCH_DETOUR, site->detour, thunk);
	prepare(TLK_PATCH_PLACE, site->at, code, SHORT_JMP_BYTES, code);
}

/*
 * A sti and the NOP behind it are two places. An NMI may come between them, and interrupts may
 * arrive there when it returns, so a CPU may continue at the NOP however long one waits. First the
 * NOP becomes the jump; then the sti becomes a prefix of the jump that changes nothing. An
 * instruction begins at each of the two places at all times, and both lead to the thunk, which has
 * a sti.
 */
static void prepare_enable(u8 *at, const u8 *thunk)
{
	/* Meanwhile it is a jump to the NOP's place. The kernel emulates none that is shorter. */
	const u8 meanwhile[TLK_JMP_BYTES] = { SHORT_JMP, (u8)-1 };
	const u8 after[] = { JMP_PREFIX, JMP };
	struct tlk_patch *patch;

	prepare_jump(TLK_PATCH_PLACE, at + 1, thunk);
	patch = prepare(TLK_PATCH_PREFIX, at, after, sizeof(after), meanwhile);
	patch->before[1] = JMP;
}

/*
 * A cli and its NOP are one byte longer than the jump. No CPU reaches that byte, but the kernel
 * does when it decodes the function from its start for a new kprobe. As a NOP it keeps the decoder
 * in step.
 */
static void prepare_disable(u8 *at, const u8 *thunk)
{
	const u8 after[] = { NOP }, meanwhile[TLK_JMP_BYTES] = {};

	prepare_jump(TLK_PATCH_PLACE, at, thunk);
	prepare(TLK_PATCH_DEAD, at + TLK_JMP_BYTES, after, sizeof(after), meanwhile);
}

static void prepare_all(const struct tlk_sites *sites, u8 *const *thunks)
{
	u32 i;

	patch_count = 0;
	for (i = 0; i < sites->count; i++) {
		const struct tlk_site_code *site = &sites->code[i];

		if (site->detour)
			prepare_detour(site, thunks[i]);
		else if (tlk_probe_sites[i].kind == TLK_SITE_ENABLE)
			prepare_enable(site->at, thunks[i]);
		else if (tlk_probe_sites[i].kind == TLK_SITE_DISABLE)
			prepare_disable(site->at, thunks[i]);
		else
			prepare_jump(TLK_PATCH_PLACE, site->at, thunks[i]);
	}
}

/* Whether each short jump can reach its detour, before anything is changed. */
static bool detours_are_near(const struct tlk_sites *sites)
{
	u32 i;

	for (i = 0; i < sites->count; i++) {
		const struct tlk_site_code *site = &sites->code[i];
		const long distance = site->detour - (site->at + SHORT_JMP_BYTES);

		if (site->detour && (distance < S8_MIN || distance > S8_MAX))
			return false;
	}
	return true;
}

static void enter_kernel(void *unused)
{
}

int tlk_probes_insert(const struct tlk_sites *sites, u8 *const *thunks)
{
	int error;

	if (patch_count)
		return -EBUSY;
	if (!detours_are_near(sites))
		return -EOPNOTSUPP;
	prepare_all(sites, thunks);
	/*
	 * The code is still what the search found, and the change expects what prepare_all() has
	 * read.
	 */
	error = tlk_sites_are_unchanged(sites) ? tlk_patches_insert(patches, patch_count) : -EAGAIN;
	if (error) {
		patch_count = 0;
		return error;
	}
	/* From now on each CPU records its next return to user mode. */
	on_each_cpu(enter_kernel, NULL, 1);
	return 0;
}

u32 tlk_probes_remove(void)
{
	u32 foreign = tlk_patches_remove(patches, patch_count);

	if (foreign)
		return foreign;
	synchronize_rcu_tasks();
	patch_count = 0;
	return 0;
}
