/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What one processor has while a thread in supervisor mode is on it: shared by supervisor/cpu.c,
 * which changes it, and the assembly, which finds its fields through supervisor/offsets.c.
 */
#ifndef TLK_SUPERVISOR_CPU_H
#define TLK_SUPERVISOR_CPU_H

#include <linux/cache.h>
#include <linux/percpu.h>
#include <linux/ptrace.h>
#include <linux/sizes.h>
#include <linux/trapless.h>
#include <linux/types.h>

struct tlk_mark;

/* Index of the TSS's interrupt-stack table that stock kernels leave free (they use 0 to 4). */
#define TLK_IST_INDEX 5

/*
 * The stack that every interrupt and fault arrives on while the processor is armed (interrupt
 * stack 6 of the TSS), and what the stubs need while they know nothing but this stack: its size is
 * its alignment. Each stub copies its frame to where the kernel expects it and is gone. Only an NMI
 * or a machine check can come between; what faults inside those uses the next area below.
 */
#define TLK_STACK_AREA_BYTES 1024
#define TLK_STACK_AREAS 4

struct tlk_supervisor_stack {
	u64 entry_stack;	/* top of the stack for arrivals from user mode (TSS, sp0) */
	u64 *ist;		/* the TSS slot that points into areas[] */
	u64 spill[3][2];	/* two registers each of #DB, NMI and #MC */
	u64 *demotions;		/* TL_DEMOTIONS counts of the thread that is here, or nowhere[] */
	u64 nowhere[TL_DEMOTIONS];
	struct pt_regs nobody;	/* frame of tlk_supervisor_cpu while no marked thread is here */
	u8 areas[TLK_STACK_AREAS][TLK_STACK_AREA_BYTES] __aligned(SZ_4K);
};
static_assert(sizeof(struct tlk_supervisor_stack) == SZ_8K);

/*
 * Written with interrupts off by the processor itself. Between marked threads `thread` is
 * tlk_supervisor_nobody, whose flags are all set: whoever comes through a forgotten MSR_LSTAR is
 * handed to the kernel's entry.
 */
struct tlk_supervisor_cpu {
	u64 user_sp;		/* for a few instructions of the entry */
	struct pt_regs *frame;	/* where the entry puts the caller's registers */
	const void *thread;	/* the marked thread that is on this processor, or nobody */
	u64 direct;		/* calls since the last tlk_supervisor_cpu_count() */
	u64 kernel;
	struct tlk_supervisor_stack *stack;
	struct tlk_mark *mark;	/* of `thread`, or NULL */
	bool ready;		/* set up, and not about to go offline */
	bool armed;		/* LSTAR, IDT and CR4 are the module's */
	bool silent;		/* the last thread made no call here: is LSTAR still ours? */
} ____cacheline_aligned;

DECLARE_PER_CPU(struct tlk_supervisor_cpu, tlk_supervisor_cpu);

/* To be called and undone in this order; the first returns 1 + enum tl_refusal, 0 or -errno. */
int tlk_supervisor_cpus_init(unsigned long kernel_entry);
void tlk_supervisor_cpus_exit(void);

/* Has all processors do tlk_supervisor_cpu_count(); in process context. */
void tlk_supervisor_cpus_count(void);

/* All with interrupts off, on the processor that is meant. */
void tlk_supervisor_cpu_arm(struct tlk_mark *mark);
void tlk_supervisor_cpu_leave(bool disarm);
void tlk_supervisor_cpu_count(void);

static __always_inline bool tlk_supervisor_cpu_is_here(const void *thread)
{
	return this_cpu_read(tlk_supervisor_cpu.thread) == thread;
}

/* supervisor/entry.S */
void tlk_supervisor_call(void);
void tlk_supervisor_hand_over(void);

/* supervisor/faults.S: one for each vector, each this long; and three that keep their stack. */
#define TLK_STUB_BYTES 16
extern const char tlk_supervisor_stubs[];
extern const char tlk_supervisor_stub_debug[];
extern const char tlk_supervisor_stub_nmi[];
extern const char tlk_supervisor_stub_machine_check[];

/* supervisor/call.c */
extern u64 tlk_supervisor_handlers[];	/* the kernel's 256 gates, by vector */
extern const struct tlk_nobody {
	unsigned long words[8];
} tlk_supervisor_nobody;

#endif /* TLK_SUPERVISOR_CPU_H */
