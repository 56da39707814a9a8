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

#define SHORT_JMP_BYTES 2

/* Detours, then places. */
static struct tlk_patch patches[2 * TLK_SITES_MAX];
static u32 patch_count;
static u32 detour_count;

static void prepare(u8 *at, const void *after, u8 length)
{
	struct tlk_patch *patch = &patches[patch_count++];

	*patch = (struct tlk_patch){ .at = at, .length = length };
	memcpy(patch->before, at, length);
	memcpy(patch->after, after, length);
}

static void prepare_all(const struct tlk_sites *sites, u8 *const *thunks)
{
	u8 code[TLK_JMP_BYTES];
	u32 i;

	patch_count = 0;
	for (i = 0; i < sites->count; i++) {
		if (sites->code[i].detour) {
			tlk_jump(code, sites->code[i].detour, thunks[i]);
			prepare(sites->code[i].detour, code, sizeof(code));
		}
	}
	detour_count = patch_count;
	for (i = 0; i < sites->count; i++) {
		const struct tlk_site_code *site = &sites->code[i];

		if (site->detour) {
			code[0] = 0xeb;
			code[1] = site->detour - (site->at + SHORT_JMP_BYTES);
			prepare(site->at, code, SHORT_JMP_BYTES);
		} else {
			tlk_jump(code, site->at, thunks[i]);
			prepare(site->at, code, sizeof(code));
		}
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
	if (patch_count)
		return -EBUSY;
	if (!detours_are_near(sites))
		return -EOPNOTSUPP;
	prepare_all(sites, thunks);
	tlk_patches_insert(patches, patch_count, detour_count);
	/* A CPU in user mode says so when it gets back there. */
	on_each_cpu(enter_kernel, NULL, 1);
	return 0;
}

u32 tlk_probes_remove(void)
{
	u32 foreign = tlk_patches_remove(patches, patch_count, detour_count);

	if (foreign)
		return foreign;
	synchronize_rcu_tasks();
	patch_count = 0;
	return 0;
}
