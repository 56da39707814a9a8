/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * Marks in a program's code that the model inside the emulator sees (docs/model.md): where
 * modelling starts and stops, and where a region begins and ends. The plugin, programs and modules
 * include it.
 *
 * Each mark is a no-operation with a value in its displacement: on hardware, or without the plugin,
 * nothing happens. The jump behind the mark ends the emulator's block of code, so that the
 * emulator translates, and counts, what follows a mark after it has seen the mark.
 */
#ifndef TRAPLESS_MODEL_H
#define TRAPLESS_MODEL_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdint.h>
#endif

#define TL_MODEL_MARK_MASK 0xffff0000u
#define TL_MODEL_MARK 0x544c0000u
#define TL_MODEL_MARK_NIBBLE 0x0100u /* plus four bits, shifted into the label */

enum tl_model_mark {
	TL_MODEL_MARK_ON = 0x0200,
	TL_MODEL_MARK_BEGIN,
	TL_MODEL_MARK_END,
	TL_MODEL_MARK_OFF,
	TL_MODEL_MARK_COLD,
};

#define TL_MODEL_EMIT(value)                                                                      \
	__asm__ volatile(".byte 0x0f, 0x1f, 0x80\n\t"                                             \
			 ".long %c0\n\t"                                                          \
			 "jmp 1f\n1:"                                                             \
			 :                                                                        \
			 : "i"(TL_MODEL_MARK | (value))                                           \
			 : "memory")

/*
 * Start modelling, with every structure empty. A program does this once, for the emulator then
 * translates all code again.
 */
static inline void tl_model_on(void)
{
	TL_MODEL_EMIT(TL_MODEL_MARK_ON);
}

/*
 * Stop modelling: the emulator returns to full speed.
 *
 * The division is for QEMU before 8.0. An instruction that QEMU emulates by a function of its own,
 * and that ends a block (SYSRET), leaves a pointer to its callbacks behind, and the next access
 * that such a function makes goes there. The next instruction that is emulated by a function and
 * does not end the block clears the pointer: here, before the callbacks are freed.
 */
static inline void tl_model_off(void)
{
	unsigned int low = 1, high = 0;

	__asm__ volatile("div %0" : "+a"(low), "+d"(high) : : "cc");
	TL_MODEL_EMIT(TL_MODEL_MARK_OFF);
}

/* Begin a region: its counts start at 0. A region that was not ended is discarded. */
static inline void tl_model_begin(void)
{
	TL_MODEL_EMIT(TL_MODEL_MARK_BEGIN);
}

/* End the region: its counts are written as one row. */
static inline void tl_model_end(void)
{
	TL_MODEL_EMIT(TL_MODEL_MARK_END);
}

/* Empty every structure and reset its random numbers: later counts depend on nothing before. */
static inline void tl_model_cold(void)
{
	TL_MODEL_EMIT(TL_MODEL_MARK_COLD);
}

static inline void tl_model_label_nibble(unsigned int bits)
{
#define TL_MODEL_NIBBLE(n)                                                                        \
	case n:                                                                                   \
		TL_MODEL_EMIT(TL_MODEL_MARK_NIBBLE | (n));                                        \
		break
	switch (bits & 15) {
		TL_MODEL_NIBBLE(0);
		TL_MODEL_NIBBLE(1);
		TL_MODEL_NIBBLE(2);
		TL_MODEL_NIBBLE(3);
		TL_MODEL_NIBBLE(4);
		TL_MODEL_NIBBLE(5);
		TL_MODEL_NIBBLE(6);
		TL_MODEL_NIBBLE(7);
		TL_MODEL_NIBBLE(8);
		TL_MODEL_NIBBLE(9);
		TL_MODEL_NIBBLE(10);
		TL_MODEL_NIBBLE(11);
		TL_MODEL_NIBBLE(12);
		TL_MODEL_NIBBLE(13);
		TL_MODEL_NIBBLE(14);
		TL_MODEL_NIBBLE(15);
	}
#undef TL_MODEL_NIBBLE
}

/* Label the next region with 64 bits whose meaning the program defines. */
static inline void tl_model_label(uint64_t label)
{
	int shift;

	for (shift = 60; shift >= 0; shift -= 4)
		tl_model_label_nibble((unsigned int)(label >> shift));
}

#endif
