/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of one processor while a thread in supervisor mode is on it. cpu.c changes it, and the
 * assembly finds its fields through offsets.c. This header owns the layouts, and knows of a thread
 * only where its calls are counted.
 */
#ifndef TLK_SUPERVISOR_CPU_H
#define TLK_SUPERVISOR_CPU_H

#include <linux/bits.h>
#include <linux/cache.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/ptrace.h>
#include <linux/seqlock.h>
#include <linux/sizes.h>
#include <linux/trapless.h>
#include <linux/types.h>

/* Calls by the way they went, and demotions by cause: see struct tl_process. */
struct tlk_call_counts {
	u64 direct, worked, left, kernel;
	u64 demotions[TL_DEMOTIONS];
};

void tlk_call_counts_add(struct tlk_call_counts *sum, const struct tlk_call_counts *counts);

/* Bits of registers that older headers do not name. */
#define TLK_CR4_CET BIT_ULL(23)
#define TLK_CR4_LASS BIT_ULL(27)
#define TLK_MSR_S_CET 0x6a2
#define TLK_S_CET_SHADOW_STACK BIT_ULL(0)
#define TLK_S_CET_ENDBR_BIT 2
#define TLK_S_CET_ENDBR BIT_ULL(TLK_S_CET_ENDBR_BIT)

/* Index of the TSS's interrupt-stack table that stock kernels leave free (they use 0 to 4). */
#define TLK_IST_INDEX 5

/*
 * The part of a thread in supervisor mode that follows it from processor to processor: the
 * scheduler's notifier, and the counts. Counts change with interrupts off, on the processor where
 * the thread is; others read them by tlk_supervisor_cpu_sum().
 */
struct tlk_cpu_thread {
	struct preempt_notifier notifier;
	struct tlk_call_counts counts;
	int number;		/* of the processor that it was armed on last; set before `owner` */
};

/*
 * The stack on which every interrupt and fault arrives while the processor is armed (interrupt
 * stack 6 of the TSS), and what the stubs need while they know nothing but this stack: its size is
 * its alignment. Each stub copies its frame to where the kernel expects it and leaves the stack.
 * Only an NMI or a machine check can come between; a fault inside those uses the next area below.
 */
#define TLK_STACK_AREA_BYTES 1024
#define TLK_STACK_AREAS 4

struct tlk_supervisor_stack {
	u64 entry_stack;	/* top of the stack for arrivals from user mode (TSS, sp0) */
	u64 *ist;		/* the TSS slot that points into areas[] */
	u64 espfix;		/* where iretq's frame for a 16-bit stack segment can be written */
	u64 spill[3][2];	/* two registers each of #DB, NMI and #MC */
	u64 *demotions;		/* counts of the thread that is here, or nowhere[] */
	u64 nowhere[TL_DEMOTIONS];
	const void *thread;	/* as in tlk_supervisor_cpu */
	u64 raised_sum;		/* of the state in which one was tried again at level 0 */
	u64 raised_error;	/* and the selector that it was to load in user mode */
	struct pt_regs nobody;	/* frame of tlk_supervisor_cpu while no such thread is here */
	u8 areas[TLK_STACK_AREAS][TLK_STACK_AREA_BYTES] __aligned(SZ_4K);
};
static_assert(sizeof(struct tlk_supervisor_stack) == SZ_8K);

/*
 * Written with interrupts off by the processor itself. While no thread in supervisor mode is here,
 * `thread` is tlk_supervisor_nobody, whose flags are all set: a call that comes because MSR_LSTAR
 * is the module's still is handed to the kernel's entry.
 */
struct tlk_supervisor_cpu {
	u64 user_sp;		/* for a few instructions of the entry */
	struct pt_regs *frame;	/* where the entry puts the caller's registers */
	const void *thread;	/* the thread in supervisor mode that is here, or nobody */
	u64 direct;		/* calls since the last tlk_supervisor_cpu_count() */
	u64 kernel;
	u64 beyond;		/* TLK_CALL_BEYOND */
	struct tlk_supervisor_stack *stack;
	struct tlk_cpu_thread *owner;	/* the part of `thread` here, or NULL */
	bool ready;		/* set up, and not about to go offline */
	bool armed;		/* LSTAR, IDT, CR4 and S_CET are the module's */
	bool silent;		/* the last thread made no call here: LSTAR may be changed */
	seqcount_t moves;	/* of counts, from here to the owner's */
} ____cacheline_aligned;

DECLARE_PER_CPU(struct tlk_supervisor_cpu, tlk_supervisor_cpu);

/* The first returns 1 + enum tl_refusal, 0 or -errno. */
int tlk_supervisor_cpus_init(unsigned long kernel_entry);
void tlk_supervisor_cpus_exit(void);

/*
 * The counts of a thread, those included that its processor has not given it yet. Anyone may ask
 * for them as often as they like, so it interrupts no processor and takes no lock. The thread must
 * not be freed meanwhile.
 */
void tlk_supervisor_cpu_sum(const struct tlk_cpu_thread *owner, struct tlk_call_counts *counts);

/* All three with interrupts off, on the processor that is meant. */
void tlk_supervisor_cpu_arm(struct tlk_cpu_thread *owner);
void tlk_supervisor_cpu_leave(bool disarm);
void tlk_supervisor_cpu_count(void);

static __always_inline bool tlk_supervisor_cpu_is_here(const void *thread)
{
	return this_cpu_read(tlk_supervisor_cpu.thread) == thread;
}

/* The assembly reads these three. */
extern u64 tlk_supervisor_handlers[];	/* the kernel's 256 gates, by vector, and RETRY */
extern u64 tlk_supervisor_tracking;	/* MSR_IA32_S_CET where branches are tracked, else 0 */
extern const struct tlk_nobody {
	unsigned long words[8];
} tlk_supervisor_nobody;

#endif /* TLK_SUPERVISOR_CPU_H */
