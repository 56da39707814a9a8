/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Changing the kernel's code while it runs, by the kernel's own means, and what must be known about
 * code before: its instructions, functions and patchable places.
 */
#ifndef TLK_COMPAT_POKE_H
#define TLK_COMPAT_POKE_H

#include <linux/jump_label.h>
#include <linux/mutex.h>
#include <linux/types.h>
#include <asm/insn.h>

/* Finds what the functions below need; 0, or -ENOENT with the name of what is missing. */
int tlk_poke_init(const char **missing);

#define TLK_PATCH_BYTES_MAX 5

/* A change of code: of one instruction, or of a cli or sti and the NOP behind it. */
struct tlk_patch {
	u8 *at;
	u8 length;
	u8 before[TLK_PATCH_BYTES_MAX];
	u8 after[TLK_PATCH_BYTES_MAX];	/* a jump of this length */
	bool is_in;
};

/*
 * Make changes, and take them back. A CPU that gets there meanwhile behaves as if the jump were
 * there. The first `detours` of them are made before the others, which lead there, and taken back
 * after them. Those that are in already, or are not, are left alone. Sleep; one thread at a time.
 *
 * Nothing is taken back where others have changed some of the code since; returns in how many
 * places.
 */
void tlk_patches_insert(struct tlk_patch *patches, u32 count, u32 detours);
u32 tlk_patches_remove(struct tlk_patch *patches, u32 count, u32 detours);

/* Write code that nobody runs. */
void tlk_poke_dead(void *at, const void *code, size_t length);

/* Decode one instruction of the kernel; a negative error if it is none. */
int tlk_decode(struct insn *insn, const void *code);

/* The function that an address belongs to: its size and the address's offset in it. */
bool tlk_function_at(unsigned long address, unsigned long *size, unsigned long *offset);

/* Where the kernel's code begins and ends, and the tables of its patchable places. */
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
