/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Changes the kernel's code while it runs, by the kernel's own means, and answers what must be
 * known about code first: its instructions, functions and patchable places. This header owns the
 * form of a change; probe/ owns which changes are made.
 */
#ifndef TLK_COMPAT_POKE_H
#define TLK_COMPAT_POKE_H

#include <linux/jump_label.h>
#include <linux/mutex.h>
#include <linux/types.h>
#include <asm/insn.h>

/* Finds what the functions below need. Returns 0, or -ENOENT with the name of what is missing. */
int tlk_poke_init(const char **missing);

#define TLK_PATCH_BYTES_MAX 5

/*
 * Changes are made stage by stage, and taken back in reverse. A change of the last stage is a
 * single byte, which no CPU executes at that time.
 */
enum tlk_patch_stage {
	TLK_PATCH_DETOUR,
	TLK_PATCH_PLACE,
	TLK_PATCH_PREFIX,
	TLK_PATCH_DEAD,
	TLK_PATCH_STAGES,
};

/*
 * A change of code: of one instruction, or of a cli and the NOP behind it. Any CPU may be about to
 * execute any instruction of `before`, and the kernel waits until each CPU has taken an interrupt.
 * So no CPU may reach an instruction behind the first one with interrupts enabled.
 */
struct tlk_patch {
	u8 *at;
	u8 length;
	u8 stage;			/* enum tlk_patch_stage */
	u8 before[TLK_PATCH_BYTES_MAX];
	u8 after[TLK_PATCH_BYTES_MAX];
	u8 meanwhile[TLK_PATCH_BYTES_MAX];	/* a jump of this length */
	bool is_in;
};

/*
 * The first function makes changes, the second takes them back. A CPU that executes a place
 * meanwhile behaves as if `meanwhile` were there. A change that is in the wanted state already is
 * left alone. Both functions sleep; the caller lets one thread in at a time.
 *
 * Nothing is changed if some of the code is not as `before` says: then the first function returns
 * -EAGAIN, else 0. Nothing is taken back if somebody else has changed some of the code since, or
 * has a kprobe there, on or off; the second function returns the number of such places. The caller
 * of the first one keeps kprobes away.
 */
int tlk_patches_insert(struct tlk_patch *patches, u32 count);
u32 tlk_patches_remove(struct tlk_patch *patches, u32 count);

/* Between the two calls no kprobe is registered, armed, optimised or removed. Both may sleep. */
void tlk_kprobes_lock(void);
void tlk_kprobes_unlock(void);

/* Whether a kprobe is registered at one of these bytes, on or off. With kprobes locked. */
bool tlk_kprobe_within(const u8 *at, size_t bytes);

/* Writes code that nobody runs. */
void tlk_poke_dead(void *at, const void *code, size_t length);

/* Decodes one instruction of the kernel. Returns a negative error if there is none. */
int tlk_decode(struct insn *insn, const void *code);

/* Finds the function that an address belongs to: its size and the address's offset in it. */
bool tlk_function_at(unsigned long address, unsigned long *size, unsigned long *offset);

/* The bounds of the kernel's code, and the tables of its patchable places. */
struct tlk_text {
	u8 *start;
	u8 *end;
	struct jump_entry *jumps;
	struct jump_entry *jumps_end;
	s32 *calls;		/* pairs: code and key of static calls, each from its own place */
	s32 *calls_end;
	struct static_key *context_key;	/* of code that tracks user mode, or NULL */
	void *user_enter;		/* what it calls */
	void *user_exit;
};

extern struct tlk_text tlk_text;

#endif /* TLK_COMPAT_POKE_H */
