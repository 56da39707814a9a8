/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's tracepoints to which the module has handlers. This file owns where they are
 * declared, which arguments they have, and the check that each handler takes these. It owns no
 * handler.
 *
 * A tracepoint calls its handlers by pointers without a type, so the compiler checks none of them.
 * A kernel with control-flow integrity (CONFIG_CFI) checks each call, and stops at a wrong type. So
 * one place, symbols.c, gives handlers to the kernel. It takes them as struct tlk_handler, which
 * only TLK_HANDLER() makes, and that compiles only where the types are equal.
 */
#ifndef TLK_COMPAT_TRACEPOINTS_H
#define TLK_COMPAT_TRACEPOINTS_H

#include <linux/build_bug.h>
#include <linux/interrupt.h>	/* what the next one names */
#include <trace/events/irq.h>
#include <trace/events/sched.h>
#include <trace/events/signal.h>
#include <trace/events/syscalls.h>
#ifdef CONFIG_X86
#include <asm/trace/irq_vectors.h>
#if __has_include(<trace/events/exceptions.h>)
#include <trace/events/exceptions.h>	/* where page_fault_user went */
#else
#include <asm/trace/exceptions.h>
#endif
#endif

/* A kernel without CONFIG_SMP never calls these: the names exist, and lead to no tracepoint. */
#ifndef CONFIG_SMP
#define TLK_OTHERS(tracepoint)								\
static inline void check_trace_callback_type_##tracepoint(void (*handler)(void *data, int vector)) \
{											\
}

TLK_OTHERS(reschedule_entry)
TLK_OTHERS(reschedule_exit)
TLK_OTHERS(call_function_entry)
TLK_OTHERS(call_function_exit)
TLK_OTHERS(call_function_single_entry)
TLK_OTHERS(call_function_single_exit)
#endif

/* The arguments of sched_process_exit behind the task. */
#ifdef TLK_HAS_GROUP_DEAD
#define TLK_EXIT_ARGUMENTS , bool group_dead
#else
#define TLK_EXIT_ARGUMENTS
#endif

/*
 * For each tracepoint the kernel has a function that takes a handler of its type and does
 * nothing.
 */
#define TLK_HANDLER(name, handler) {								\
	.tracepoint = #name,									\
	.function = (struct tlk_checked_function *)						\
		    ((void *)(handler) +							\
		     BUILD_BUG_ON_ZERO(!__same_type(check_trace_callback_type_##name,		\
						    void (typeof(&(handler)))))),		\
}

#endif /* TLK_COMPAT_TRACEPOINTS_H */
