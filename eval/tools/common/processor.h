/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What measuring asks of a processor: its counter, a loop of a known number of instructions, and
 * the name of its hypervisor. It owns no measurement.
 */
#ifndef EVAL_PROCESSOR_H
#define EVAL_PROCESSOR_H

#include <stdint.h>

#ifdef __x86_64__

#include <cpuid.h>
#include <string.h>

#define PROCESSOR_COUNTER_STEP 1u	/* instructions, under -icount shift=0 */
#define PROCESSOR_LOOP 1001		/* instructions of processor_loop() */
#define PROCESSOR_LEAF_HYPERVISOR 0x40000000u

/* The time-stamp counter. */
static inline __attribute__((always_inline)) uint64_t measure_counter(void)
{
	uint32_t low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
}

static inline __attribute__((always_inline)) void processor_loop(void)
{
	__asm__ volatile("mov %0, %%ecx\n1:\tdec %%ecx\n\tjnz 1b"
			 : : "i"(PROCESSOR_LOOP / 2) : "ecx", "cc");
}

/* Tells the processor that this thread reads a word again and again. */
static inline void processor_pause(void)
{
	__builtin_ia32_pause();
}

/* The name that a hypervisor gives to its guests, "" without one; emulators give one, too. */
static inline const char *processor_hypervisor(void)
{
	static char name[13];
	unsigned int highest, features, word[3], unused;

	if (!__get_cpuid(1, &highest, &unused, &features, &unused) || !(features >> 31 & 1))
		return "";
	__cpuid(PROCESSOR_LEAF_HYPERVISOR, highest, word[0], word[1], word[2]);
	memcpy(name, word, sizeof(word));
	for (char *c = name; *c; c++)
		if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
			*c = '?';
	return name;
}

#else /* arm64 */

/* Under -icount shift=0 an instruction takes 1 ns, and the emulator's timer runs at 62.5 MHz. */
#define PROCESSOR_COUNTER_STEP 16u
#define PROCESSOR_LOOP 1001

/* The virtual counter of the generic timer. */
static inline __attribute__((always_inline)) uint64_t measure_counter(void)
{
	uint64_t value;

	__asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(value) : : "memory");
	return value * PROCESSOR_COUNTER_STEP;
}

static inline __attribute__((always_inline)) void processor_loop(void)
{
	uint64_t left;

	__asm__ volatile("mov %0, %1\n1:\tsubs %0, %0, #1\n\tb.ne 1b"
			 : "=&r"(left) : "i"(PROCESSOR_LOOP / 2) : "cc");
}

static inline void processor_pause(void)
{
	__asm__ volatile("yield");
}

/* No instruction of a program tells. */
static inline const char *processor_hypervisor(void)
{
	return "";
}

#endif

#endif /* EVAL_PROCESSOR_H */
