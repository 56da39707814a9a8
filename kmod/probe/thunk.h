/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Thunks: the few instructions that a patched place runs instead of its own. This header owns what
 * they write to on each CPU, and how they are made.
 */
#ifndef TLK_PROBE_THUNK_H
#define TLK_PROBE_THUNK_H

#include <linux/percpu-defs.h>
#include <asm/processor-flags.h>

#include "probe/layout.h"
#include "probe/site.h"

/*
 * A cli that may nest has the interrupt flag of before choose where it stores, without a branch:
 * into the record if the flag was set, else to `nowhere`.
 */
struct tlk_probe_cpu {
	u64 nowhere;
	u64 room[X86_EFLAGS_IF / sizeof(u64) - 1];
	struct tlk_probe_record record;
};

DECLARE_PER_CPU_ALIGNED(struct tlk_probe_cpu, tlk_probe_cpu);

#define TLK_JMP_BYTES 5

/* Writes a jump from `from` to `to` into `code`, TLK_JMP_BYTES. */
void tlk_jump(u8 *code, const u8 *from, const u8 *to);

/*
 * Writes the thunks of all places, and their addresses into `thunks`. Returns 0 or -E2BIG,
 * -EOPNOTSUPP. No CPU may be in a thunk.
 */
int tlk_thunks_write(const struct tlk_sites *sites, u32 what, u8 **thunks);

#endif /* TLK_PROBE_THUNK_H */
