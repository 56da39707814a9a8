// SPDX-License-Identifier: GPL-2.0-only
/*
 * Prepares processors: sets up each one once, changes MSR_LSTAR, the IDT, CR4 and MSR_IA32_S_CET
 * while a thread in supervisor mode is on it, and changes them back after. This file owns the
 * hardware's state. It owns nothing about threads.
 *
 * All of it happens with interrupts off, in the scheduler's notifiers and when a thread enters or
 * leaves supervisor mode. NMIs come at any moment; their stub needs only `stack`, which is there
 * from set-up to the end.
 *
 * Suspend needs nothing here: the other processors go offline, and the last one keeps its memory.
 * If the thread that suspends is itself in supervisor mode, the kernel has written its own LSTAR on
 * resume, so the thread's calls go through the kernel's entry until it is scheduled in again.
 */
#include <linux/cpuhotplug.h>
#include <linux/errno.h>
#include <linux/gfp.h>
#include <linux/lockdep.h>
#include <linux/sched/task_stack.h>
#include <linux/smp.h>
#include <linux/thread_info.h>
#include <asm/desc.h>
#include <asm/msr.h>
#include <asm/processor.h>
#include <asm/tlbflush.h>
#include <asm/trapnr.h>

#include "compat/entry.h"
#include "compat/symbols.h"
#include "limits.h"
#include "supervisor/cpu.h"
#include "supervisor/entry.h"

#define GATES 256

/* Calls also return on processors that are not set up: `thread` is nobody there, too. */
DEFINE_PER_CPU(struct tlk_supervisor_cpu, tlk_supervisor_cpu) = {
	.thread = &tlk_supervisor_nobody,
	.beyond = TLK_CALL_BEYOND,
};

u64 tlk_supervisor_handlers[GATES + 1] __ro_after_init;
u64 tlk_supervisor_tracking __ro_after_init;
static_assert(TLK_VECTOR_RETRY == GATES);
const struct tlk_nobody tlk_supervisor_nobody = { .words = { [0 ... 7] = ~0ul } };

/* Filled in once, then read-only to all but the processor's own loads. */
static gate_desc gates[GATES] __ro_after_init __aligned(PAGE_SIZE);
static const struct desc_ptr gates_pointer = {
	.size = sizeof(gates) - 1,
	.address = (unsigned long)gates,
};

static struct desc_ptr kernel_gates __ro_after_init;
static unsigned long kernel_lstar __ro_after_init;
static unsigned long cr4_bits __ro_after_init;	/* of SMEP, SMAP and LASS, what the kernel has on */
static const u64 __percpu *espfix_waddr __ro_after_init;	/* NULL in kernels without espfix */
static int hotplug_state __ro_after_init;

/*
 * Reads CR4 as it is, past the kernel's copy: the kernel must not learn of the change here, or its
 * check of pinned bits would take it for an attack.
 */
static __always_inline unsigned long cr4_get(void)
{
	unsigned long value;

	asm volatile("mov %%cr4, %0" : "=r" (value));
	return value;
}

static __always_inline void cr4_set(unsigned long value)
{
	asm volatile("mov %0, %%cr4" : : "r" (value) : "memory");
}

static __always_inline void lstar_set(unsigned long address)
{
	native_wrmsr(MSR_LSTAR, (u32)address, (u32)(address >> 32));
}

/*
 * Switches tracking of indirect branches at level 0 (IBT), for which a program's code has no marks.
 * CR4.CET stays on: it is pinned. The tracker is idle here, between two branches, so the value is
 * written without being read first.
 */
static __always_inline void tracking_set(bool on)
{
	u64 value = tlk_supervisor_tracking & ~(on ? 0 : TLK_S_CET_ENDBR);

	if (tlk_supervisor_tracking)
		native_wrmsr(TLK_MSR_S_CET, (u32)value, (u32)(value >> 32));
}

/* MSR_IA32_S_CET where the kernel tracks indirect branches, else 0. */
static u64 tracking_get(void)
{
	u32 low, high;

	if (!(cr4_get() & TLK_CR4_CET))
		return 0;
	rdmsr(TLK_MSR_S_CET, low, high);
	return low & TLK_S_CET_ENDBR ? low | (u64)high << 32 : 0;
}

static unsigned long lstar_get(void)
{
	u32 low, high;

	rdmsr(MSR_LSTAR, low, high);
	return low | (unsigned long)high << 32;
}

/* Adds the processor's counts of calls to those of the thread that is on it. */
void tlk_supervisor_cpu_count(void)
{
	struct tlk_supervisor_cpu *cpu = this_cpu_ptr(&tlk_supervisor_cpu);
	struct tlk_cpu_thread *owner = cpu->owner;

	lockdep_assert_irqs_disabled();
	if (!owner)
		return;
	/* Pairs with the reader's section in tlk_supervisor_cpu_sum(). */
	raw_write_seqcount_begin(&cpu->moves);
	owner->counts.direct += cpu->direct;
	owner->counts.kernel += cpu->kernel;
	cpu->direct = 0;
	cpu->kernel = 0;
	raw_write_seqcount_end(&cpu->moves);
}

void tlk_call_counts_add(struct tlk_call_counts *sum, const struct tlk_call_counts *counts)
{
	int cause;

	sum->direct += counts->direct;
	sum->worked += counts->worked;
	sum->left += counts->left;
	sum->kernel += counts->kernel;
	for (cause = 0; cause < TL_DEMOTIONS; cause++)
		sum->demotions[cause] += counts->demotions[cause];
}

/*
 * While the thread is on the processor that is read, its counts move in that processor's sections
 * only. Where it has gone to another one, `number` says so: then both are read again.
 */
void tlk_supervisor_cpu_sum(const struct tlk_cpu_thread *owner, struct tlk_call_counts *counts)
{
	const struct tlk_supervisor_cpu *cpu;
	unsigned int moves;
	int number;

	do {
		number = READ_ONCE(owner->number);
		cpu = per_cpu_ptr(&tlk_supervisor_cpu, number);
		moves = raw_read_seqcount_begin(&cpu->moves);
		*counts = data_race(owner->counts);
		if (READ_ONCE(cpu->owner) == owner) {
			counts->direct += READ_ONCE(cpu->direct);
			counts->kernel += READ_ONCE(cpu->kernel);
		}
	} while (read_seqcount_retry(&cpu->moves, moves) || READ_ONCE(owner->number) != number);
}

/* No thread is here: calls that still come are handed to the kernel with a frame of their own. */
static void nobody_here(struct tlk_supervisor_cpu *cpu)
{
	cpu->thread = &tlk_supervisor_nobody;
	cpu->frame = &cpu->stack->nobody;
	cpu->owner = NULL;
	cpu->stack->demotions = cpu->stack->nowhere;
	cpu->stack->thread = &tlk_supervisor_nobody;
}

static void disarm(struct tlk_supervisor_cpu *cpu)
{
	if (!cpu->armed)
		return;
	if (!tlk_lstar_is_guests())
		lstar_set(kernel_lstar);
	native_load_idt(&kernel_gates);
	cr4_set(cr4_get() | cr4_bits);
	tracking_set(true);
	cpu->armed = false;
}

void tlk_supervisor_cpu_leave(bool disarm_too)
{
	struct tlk_supervisor_cpu *cpu = this_cpu_ptr(&tlk_supervisor_cpu);

	lockdep_assert_irqs_disabled();
	if (!cpu->owner)
		return;
	cpu->silent = !cpu->direct;
	tlk_supervisor_cpu_count();
	nobody_here(cpu);
	if (disarm_too)
		disarm(cpu);
}

void tlk_supervisor_cpu_arm(struct tlk_cpu_thread *owner)
{
	struct tlk_supervisor_cpu *cpu = this_cpu_ptr(&tlk_supervisor_cpu);
	unsigned long cr4;

	lockdep_assert_irqs_disabled();
	if (unlikely(!cpu->ready)) {
		disarm(cpu);
		return;
	}
	cpu->kernel = 0;	/* calls between two threads are not counted */
	WRITE_ONCE(owner->number, smp_processor_id());
	smp_store_release(&cpu->owner, owner);	/* number and counts are set where it is seen */
	cpu->frame = task_pt_regs(current);
	cpu->stack->demotions = owner->counts.demotions;
	cpu->stack->thread = current;
	cpu->stack->raised_sum = 0;
	cpu->thread = current;
	cr4 = cr4_get();
	if (cr4 & cr4_bits)
		cr4_set(cr4 & ~cr4_bits);
	if (cpu->armed && !cpu->silent)
		return;
	native_load_idt(&gates_pointer);
	tracking_set(false);
	if (!tlk_lstar_is_guests())
		lstar_set((unsigned long)tlk_supervisor_call);
	cpu->armed = true;
}

static void gate_set(unsigned int vector, const char *stub, unsigned int ist)
{
	unsigned long address = (unsigned long)stub;
	gate_desc *gate = &gates[vector];

	gate->offset_low = (u16)address;
	gate->offset_middle = (u16)(address >> 16);
	gate->offset_high = (u32)(address >> 32);
	gate->bits.ist = ist;
}

/* Copies the kernel's gates with stubs in front. Those with a stack of their own keep it. */
static void __init gates_init(void)
{
	const gate_desc *kernel = (const gate_desc *)kernel_gates.address;
	unsigned int vector;

	tlk_supervisor_handlers[TLK_VECTOR_RETRY] = (u64)tlk_supervisor_retry;
	for (vector = 0; vector < GATES; vector++) {
		unsigned int ist = kernel[vector].bits.ist;

		gates[vector] = kernel[vector];
		tlk_supervisor_handlers[vector] = gate_offset(&kernel[vector]);
		if (!kernel[vector].bits.p)
			continue;
		if (!ist)
			gate_set(vector, tlk_supervisor_stubs + vector * TLK_STUB_BYTES,
				 TLK_IST_INDEX + 1);
		else if (vector == X86_TRAP_DB)
			gate_set(vector, tlk_supervisor_stub_debug, ist);
		else if (vector == X86_TRAP_NMI)
			gate_set(vector, tlk_supervisor_stub_nmi, ist);
		else if (vector == X86_TRAP_MC)
			gate_set(vector, tlk_supervisor_stub_machine_check, ist);
	}
}

/*
 * Do calls on this processor enter the kernel by its own entry? While a guest's value is in
 * MSR_LSTAR, as it may be after a guest's thread has run here, the answer is yes: KVM puts the
 * kernel's value back before the next return to user mode.
 */
static bool lstar_is_kernels(void)
{
	bool is;

	preempt_disable();
	is = tlk_lstar_is_guests();
	if (!is && lstar_get() == (unsigned long)tlk_supervisor_call)
		lstar_set(kernel_lstar);	/* KVM may have written it back */
	is = is || lstar_get() == kernel_lstar;
	preempt_enable();
	return is;
}

/* Runs on the processor itself, before it gets user threads; interrupts may be on. */
static int processor_online(unsigned int number)
{
	struct tlk_supervisor_cpu *cpu = this_cpu_ptr(&tlk_supervisor_cpu);
	u64 *ist = &this_cpu_ptr(&cpu_tss_rw)->x86_tss.ist[TLK_IST_INDEX];
	struct tlk_supervisor_stack *stack = cpu->stack;
	struct desc_ptr idt;

	if (!stack) {
		stack = (void *)__get_free_pages(GFP_KERNEL | __GFP_ZERO,
						 get_order(sizeof(*stack)));
		if (!stack)
			return -ENOMEM;
	}
	store_idt(&idt);
	if (idt.address != kernel_gates.address || !lstar_is_kernels() ||
	    tracking_get() != tlk_supervisor_tracking ||
	    (*ist && *ist != (u64)(stack + 1))) {
		if (!cpu->stack)
			free_pages((unsigned long)stack, get_order(sizeof(*stack)));
		return 0;	/* not set up: threads on it stay in user mode */
	}
	stack->ist = ist;
	stack->entry_stack = this_cpu_read(cpu_tss_rw.x86_tss.sp0);
	if (espfix_waddr)
		stack->espfix = *this_cpu_ptr(espfix_waddr) + sizeof(u64);	/* rax is first */
	cpu->stack = stack;
	nobody_here(cpu);
	*ist = (u64)(stack + 1);
	cpu->ready = true;
	return 0;
}

/*
 * The processor's own thread runs this, so no thread in supervisor mode is on it. Those that still
 * come until it is gone find it not ready and stay in user mode.
 */
static int processor_offline(unsigned int number)
{
	struct tlk_supervisor_cpu *cpu = this_cpu_ptr(&tlk_supervisor_cpu);

	local_irq_disable();
	disarm(cpu);
	if (cpu->ready) {
		native_load_idt(&kernel_gates);		/* whoever else has loaded the module's */
		this_cpu_ptr(&cpu_tss_rw)->x86_tss.ist[TLK_IST_INDEX] = 0;
	}
	cpu->ready = false;
	local_irq_enable();
	return 0;
}

/*
 * On this processor, is everything that the module replaces the kernel's own? The other processors
 * are asked later.
 */
static int __init check(unsigned long kernel_entry)
{
	const gate_desc *kernel;
	unsigned int vector;

	store_idt(&kernel_gates);
	kernel_lstar = kernel_entry;
	cr4_bits = cr4_get() & (X86_CR4_SMEP | X86_CR4_SMAP | TLK_CR4_LASS);
	tlk_supervisor_tracking = tracking_get();
	if (!lstar_is_kernels() || kernel_gates.size != sizeof(gates) - 1)
		return 1 + TL_REFUSED_ENTRY;
	if (this_cpu_read(cpu_tss_rw.x86_tss.ist[TLK_IST_INDEX]))
		return 1 + TL_REFUSED_IST;
	kernel = (const gate_desc *)kernel_gates.address;
	for (vector = 0; vector < GATES; vector++)
		if (kernel[vector].bits.p && kernel[vector].bits.ist > TLK_IST_INDEX)
			return 1 + TL_REFUSED_IST;
	return 0;
}

int __init tlk_supervisor_cpus_init(unsigned long kernel_entry)
{
	int result;

	preempt_disable();
	result = check(kernel_entry);
	preempt_enable();
	if (result)
		return result;
	gates_init();
	espfix_waddr = (const u64 __percpu __force *)tlk_symbol("espfix_waddr");
	result = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "trapless:supervisor", processor_online,
				   processor_offline);
	if (result < 0) {
		tlk_supervisor_cpus_exit();
		return result;
	}
	hotplug_state = result;
	return 0;
}

/* No thread has a state any more. */
void tlk_supervisor_cpus_exit(void)
{
	int number;

	if (hotplug_state)
		cpuhp_remove_state(hotplug_state);
	for_each_possible_cpu(number) {
		struct tlk_supervisor_cpu *cpu = per_cpu_ptr(&tlk_supervisor_cpu, number);

		if (cpu->stack)
			free_pages((unsigned long)cpu->stack, get_order(sizeof(*cpu->stack)));
		cpu->stack = NULL;
	}
}
