// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes the two dispatch tables, which are the allow-list, from the rows of trapless_calls.h. This
 * file owns the tables. It owns no row (those are part of the binary interface) and makes no call.
 */
#include <linux/build_bug.h>
#include <linux/cache.h>
#include <linux/errno.h>
#include <linux/init.h>
#include <linux/nospec.h>
#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>
#include <linux/stringify.h>
#include <asm/unistd.h>

#include "compat/features.h"
#include "ring/dispatch.h"

struct tlk_dispatch tlk_batch_calls __ro_after_init;
struct tlk_dispatch tlk_worker_calls __ro_after_init;

enum call_class {
	CALL_UNKNOWN = 0,
	CALL_REFUSED,
	CALL_BATCH_ONLY,
	CALL_ANY,
};

static const u8 call_class[TLK_NUMBERS] = {
#define TL_ANY(name, nr) [nr] = CALL_ANY,
#define TL_NULL_MASK(name, nr, argument, why) [nr] = CALL_ANY,
#define TL_SELF_VALUE(name, nr, argument, bits, value, why) [nr] = CALL_ANY,
#define TL_BATCH_ONLY(name, nr, why) [nr] = CALL_BATCH_ONLY,
#define TL_REFUSED(name, nr, why) [nr] = CALL_REFUSED,
#include <linux/trapless_calls.h>
#undef TL_ANY
#undef TL_NULL_MASK
#undef TL_SELF_VALUE
#undef TL_BATCH_ONLY
#undef TL_REFUSED
};

DEFINE_STATIC_KEY_FALSE(tlk_dispatch_is_direct);
#define TL_HOT(name, nr) DEFINE_STATIC_CALL(tlk_hot_##name, tlk_dispatch_refuse);
#include <linux/trapless_calls.h>
#undef TL_HOT

long tlk_dispatch_refuse(const struct pt_regs *regs)
{
	current_pt_regs()->TLK_NR |= TLK_REFUSED_MARK;
	return TLK_REFUSED;
}

/*
 * Calls that take a signal mask, in the register `argument`: with a mask they are refused. Calls
 * that take a value which means the calling thread: a worker refuses it. What is looked at is the
 * register that the kernel's handler reads, after any filter has changed it; the memory behind it
 * is not read, since user space could change that in between.
 */
#define TL_ANY(name, nr)
#define TL_NULL_MASK(name, nr, argument, why)                                            \
	static sys_call_ptr_t name##_handler __ro_after_init;                            \
	static long name##_without_mask(const struct pt_regs *regs)                      \
	{                                                                                \
		return regs->TLK_ARG##argument ? tlk_dispatch_refuse(regs)               \
						 : name##_handler(regs);                 \
	}
#define TL_SELF_VALUE(name, nr, argument, bits, value, why)                              \
	static sys_call_ptr_t name##_handler __ro_after_init;                            \
	static long name##_of_worker(const struct pt_regs *regs)                         \
	{                                                                                \
		return ((u32)regs->TLK_ARG##argument & (bits)) == (value) ?            \
			       tlk_dispatch_refuse(regs) : name##_handler(regs);           \
	}
#define TL_BATCH_ONLY(name, nr, why)
#define TL_REFUSED(name, nr, why)
#include <linux/trapless_calls.h>
#undef TL_ANY
#undef TL_NULL_MASK
#undef TL_SELF_VALUE
#undef TL_BATCH_ONLY
#undef TL_REFUSED

static void __init guard_arguments(const sys_call_ptr_t *table)
{
#define TL_ANY(name, nr)
#define TL_NULL_MASK(name, nr, argument, why)                 \
	if (nr < __NR_syscalls) {                             \
		name##_handler = table[nr];                   \
		tlk_dispatch_replace(nr, name##_without_mask); \
	}
#define TL_SELF_VALUE(name, nr, argument, bits, value, why)            \
	if (nr < __NR_syscalls) {                                      \
		name##_handler = table[nr];                            \
		tlk_worker_calls.handler[nr] = name##_of_worker; \
	}
#define TL_BATCH_ONLY(name, nr, why)
#define TL_REFUSED(name, nr, why)
#include <linux/trapless_calls.h>
#undef TL_ANY
#undef TL_NULL_MASK
#undef TL_SELF_VALUE
#undef TL_BATCH_ONLY
#undef TL_REFUSED
}

/*
 * Each row's number must be the kernel's. A kernel that is older than a call has no __NR_name for
 * it: there the macro stays a name, which begins with an underscore.
 */
static void __init check_numbers(void)
{
#define CHECK(name, nr) \
	BUILD_BUG_ON(__stringify(__NR_##name)[0] != '_' && \
		     __builtin_strcmp(__stringify(__NR_##name), #nr) != 0);
#define TL_ANY(name, nr) CHECK(name, nr)
#define TL_NULL_MASK(name, nr, argument, why) CHECK(name, nr)
#define TL_SELF_VALUE(name, nr, argument, bits, value, why) CHECK(name, nr)
#define TL_BATCH_ONLY(name, nr, why) CHECK(name, nr)
#define TL_REFUSED(name, nr, why) CHECK(name, nr)
#include <linux/trapless_calls.h>
#undef TL_ANY
#undef TL_NULL_MASK
#undef TL_SELF_VALUE
#undef TL_BATCH_ONLY
#undef TL_REFUSED
#undef CHECK
}

void __init tlk_dispatch_replace(unsigned int nr, sys_call_ptr_t handler)
{
	if (call_class[nr] >= CALL_BATCH_ONLY)
		tlk_batch_calls.handler[nr] = handler;
	if (call_class[nr] >= CALL_ANY)
		tlk_worker_calls.handler[nr] = handler;
}

void __init tlk_dispatch_set_beyond(sys_call_ptr_t handler)
{
	tlk_batch_calls.handler[TLK_NUMBERS] = handler;
	tlk_worker_calls.handler[TLK_NUMBERS] = handler;
}

void __init tlk_dispatch_init(const sys_call_ptr_t *table)
{
	unsigned int nr;

	BUILD_BUG_ON(__NR_syscalls > TLK_NUMBERS);
	check_numbers();
	for (nr = 0; nr <= TLK_NUMBERS; nr++) {
		tlk_batch_calls.handler[nr] = tlk_dispatch_refuse;
		tlk_worker_calls.handler[nr] = tlk_dispatch_refuse;
	}
	for (nr = 0; nr < __NR_syscalls; nr++)
		tlk_dispatch_replace(nr, table[nr]);
	guard_arguments(table);
}

void __init tlk_dispatch_seal(void)
{
	if (!tlk_has_slow_pointers())
		return;
#define TL_HOT(name, nr) static_call_update(tlk_hot_##name, tlk_batch_calls.handler[nr]);
#include <linux/trapless_calls.h>
#undef TL_HOT
	static_branch_enable(&tlk_dispatch_is_direct);
}

unsigned int tlk_dispatch_count(void)
{
	unsigned int nr, count = 0;

	for (nr = 0; nr < TLK_NUMBERS; nr++)
		count += tlk_dispatch_handler(&tlk_batch_calls, nr) != tlk_dispatch_refuse;
	return count;
}

long tlk_dispatch_refusal(unsigned int nr)
{
	if (nr >= TLK_NUMBERS)
		return -ENOSYS;
	nr = array_index_nospec(nr, TLK_NUMBERS);
	if (call_class[nr] == CALL_REFUSED)
		return -EOPNOTSUPP;
	/* A worker's request for a call that only a batch may make. */
	return tlk_dispatch_handler(&tlk_batch_calls, nr) == tlk_dispatch_refuse ? -ENOSYS
									     : -EOPNOTSUPP;
}
