// SPDX-License-Identifier: GPL-2.0-only
/*
 * The module's own loop over a batch, kmod/ring/batch.c as it is, as a function of a program in
 * user space. The Makefile compiles this file once for each way in which kernels make indirect
 * calls and returns. It owns a thread, a ring and handlers that do nothing; loop.h says what is
 * measured.
 */
#include "ring/batch.c"
#include "ring/enter.h"

#include "loop.h"

struct tlk_dispatch tlk_batch_calls;

static struct tlk_ring own_ring;
static struct file own_file;
static struct files_struct own_files = { { 1 } };

/* Handlers that read their arguments from the frame and do nothing: each hot call has its own. */
static noinline long nothing(const struct pt_regs *regs)
{
	return (long)regs->di;
}

#define TL_HOT(name, nr) \
	noinline long tlk_hot_##name##_target(const struct pt_regs *regs) \
	{ \
		__asm__ volatile("# " #name); /* each has a place of its own */ \
		return (long)regs->di; \
	}
#include <linux/trapless_calls.h>
#undef TL_HOT

/*
 * These serve work that is pending on a thread. Here none is, so a call of them ends the
 * program.
 */
long tlk_request_make_slow(struct tlk_context *context, const struct tl_request *request,
			   bool first)
{
	(void)context;
	(void)request;
	(void)first;
	__builtin_trap();
}

long tlk_request_settle(struct tlk_context *context, long result, bool first)
{
	(void)context;
	(void)result;
	(void)first;
	__builtin_trap();
}

u32 tlk_context_why_stopped(const struct tlk_context *context)
{
	(void)context;
	__builtin_trap();
}

void tlk_context_undo(struct tlk_context *context)
{
	(void)context;
	__builtin_trap();
}

noinline void estimate_fput(struct file *used)
{
	__asm__ volatile("lock decq %0" : "+m"(used->f_count.counter) : : "memory");
	if (unlikely(!used->f_count.counter))
		__builtin_trap();
}

/* The way of device.c to a batch. */
static noinline long enter(struct file *used, int whence)
{
	struct tlk_ring *own = tlk_ring_of(used);
	int error = tlk_enter_check(own);

	if (unlikely(error))
		return error;
	if (likely(whence == TL_ENTER_BATCH && !own->queue))
		return tlk_batch_enter(own, used);
	return -EINVAL;
}

void LOOP(init)(struct tl_request *requests, unsigned int entries, char *stack)
{
	static struct task_struct task;

	task.files = &own_files;
	task.stack = stack;
	estimate_task = &task;
	for (unsigned int nr = 0; nr <= TLK_NUMBERS; nr++)
		tlk_batch_calls.handler[nr] = nothing;
#define TL_HOT(name, nr) tlk_batch_calls.handler[nr] = tlk_hot_##name##_target;
#include <linux/trapless_calls.h>
#undef TL_HOT
	own_ring.requests = requests;
	own_ring.mask = entries - 1;
	own_ring.address = (unsigned long)requests;
	own_file.f_count.counter = 1;
	own_file.private_data = &own_ring;
}

long LOOP(run)(const struct tl_request *first, unsigned long n)
{
	struct pt_regs *regs = current_pt_regs();

	/* A trap would have stored them. */
	regs->r10 = (unsigned long)first;
	regs->r8 = n;
	return enter(&own_file, TL_ENTER_BATCH);
}
