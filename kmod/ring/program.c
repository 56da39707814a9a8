// SPDX-License-Identifier: GPL-2.0-only
/*
 * Executes programs of calls. This file owns what a step is: where its arguments come from, and
 * which step is the next. request.h owns how the call of a step is made. It is separate from
 * batch.c, so that independent requests do not pay for programs.
 *
 * User space may rewrite the whole ring at any time. A step executes one copy of its request, and
 * what is used as an index is checked and clamped after it was copied. A result that another step
 * takes is read from the ring, as if the program's own code had passed it on.
 */
#include <linux/bitops.h>
#include <linux/build_bug.h>
#include <linux/err.h>
#include <linux/nospec.h>
#include <linux/rcupdate.h>
#include <linux/stddef.h>
#include <linux/uaccess.h>

#include "compat/task.h"
#include "ring/program.h"
#include "ring/request.h"

/* One entry into a program. It lives on the thread's stack. */
struct program {
	struct tlk_context context;	/* for the calls of its steps */
	struct tl_request *requests;
	u32 mask;			/* entries of the ring - 1 */
	u32 end;			/* number of requests in the program */
	u32 at;				/* the next step */
	u64 made;			/* steps */
	u64 callless;			/* steps that have made no call and were not refused */
	u32 link;			/* of the step that make_unusual() has made */
};

static unsigned long *argument_of(struct pt_regs *regs, unsigned int argument)
{
	static const u8 offsets[] = {
		offsetof(struct pt_regs, TLK_ARG0), offsetof(struct pt_regs, TLK_ARG1),
		offsetof(struct pt_regs, TLK_ARG2), offsetof(struct pt_regs, TLK_ARG3),
		offsetof(struct pt_regs, TLK_ARG4), offsetof(struct pt_regs, TLK_ARG5),
	};

	BUILD_BUG_ON(offsetof(struct pt_regs, TLK_ARG0) > U8_MAX ||
		     offsetof(struct pt_regs, TLK_ARG5) > U8_MAX);
	return (void *)regs + offsets[argument];
}

/* Replaces the slot in *argument by its result. */
static __always_inline int take_result(const struct program *program, unsigned long *argument)
{
	const struct tl_request *request;
	long result;

	if (unlikely(*argument >= program->end))
		return -EINVAL;
	/* Speculation stays in the ring even where that check is mispredicted. */
	request = &program->requests[*argument & program->mask];
	if (unlikely(READ_ONCE(request->state) != TL_DONE))
		return -ECANCELED;
	result = READ_ONCE(request->result);
	if (IS_ERR_VALUE(result))
		return -ECANCELED;
	*argument = result;
	return 0;
}

/* Replaces the address in *argument by the word that is there. */
static __always_inline int take_word(unsigned long *argument, bool wide)
{
	unsigned long word;
	u32 half;

	if (wide) {
		if (get_user(word, (unsigned long __user *)*argument))
			return -EFAULT;
	} else {
		if (get_user(half, (u32 __user *)*argument))
			return -EFAULT;
		word = half;
	}
	*argument = word;
	return 0;
}

/* In place of an error: work is pending that comes before the words of this step. */
#define WORK_FIRST 1

/*
 * Replaces the arguments in the frame as bits 12 to 23 of the number say; at least one bit is set.
 * Pending work may write to a word, or the reading of a word may wait for that work: a plain call
 * would come after it. `served` says that the work is done.
 */
static __always_inline int take_arguments(const struct program *program, struct pt_regs *regs,
					  u32 sources, bool served)
{
	int error;

	do {
		unsigned int bit = __ffs(sources) & ~1u;
		unsigned long *argument = argument_of(regs, (bit - 12) / 2);
		u32 source = sources >> bit & 3;

		if (source == 1)
			error = take_result(program, argument);
		else if (!served && unlikely(tlk_exit_work()))
			error = WORK_FIRST;
		else
			error = take_word(argument, source & 1);
		sources &= ~(3u << bit);
	} while (unlikely(sources && !error));
	return error;
}

static long write_word(const struct pt_regs *regs, bool increase)
{
	unsigned long __user *address = (unsigned long __user *)regs->TLK_ARG0;
	unsigned long word = 0;

	if (increase && get_user(word, address))
		return -EFAULT;
	word += regs->TLK_ARG1;
	return put_user(word, address) ? -EFAULT : (long)word;
}

/* Makes a step that is no call, or says why it is none. */
static long make_callless(struct program *program, int error)
{
	struct pt_regs *regs = current_pt_regs();

	if (error == -ENOSYS)
		program->context.refused++;
	else
		program->callless++;
	return error ? error : write_word(regs, regs->TLK_NR == TL_NR_INCREASE);
}

/* The link of a step: 0, or TL_JUMPS with the condition and target that were copied. */
#define LINK(condition, target) (TL_JUMPS | (u32)(condition) << 16 | (target))
#define LINK_CONDITION(link) ((link) >> 16 & 0xff)
#define LINK_TARGET(link) ((link) & 0xffff)

/*
 * Takes the step's arguments and its link, and takes the program bits out of its number. Returns 0,
 * why the step makes no call, or WORK_FIRST.
 */
static __always_inline int prepare_step(const struct program *program,
					const struct tl_request *request, struct pt_regs *regs,
					u32 *link, bool served)
{
	u32 nr = regs->TLK_NR, target;
	int error = 0;

	regs->TLK_NR = nr & TL_NR_MASK;
	if (nr >= TL_JUMPS) {
		if (unlikely(nr & ~(TL_PROGRAM_BITS | TL_NR_MASK)))
			return -ENOSYS;
		target = READ_ONCE(request->target);
		if (unlikely(target > program->end))
			return -EINVAL;
		target = array_index_nospec(target, program->end + 1);
		*link = LINK(READ_ONCE(request->condition), target);
		nr &= ~TL_JUMPS;
	}
	/* Most steps take their first argument, a descriptor, and nothing else. */
	if ((nr & TL_WORD64(0)) == TL_RESULT(0)) {
		error = take_result(program, (unsigned long *)&regs->TLK_ARG0);
		nr &= ~TL_WORD64(0);
	}
	if (likely(error || nr <= TL_NR_MASK))
		return error;
	return take_arguments(program, regs, nr & ~TL_NR_MASK, served);
}

/*
 * Makes a step that is no call, or one before which work is pending. The work is served first, also
 * where no step of the program is a call. Then the step is copied and prepared anew, as a plain
 * call is prepared after the work that the call before it has left.
 */
static noinline long make_unusual(struct program *program, const struct tl_request *request,
				  int error, bool first)
{
	struct tlk_context *context = &program->context;
	struct pt_regs *regs = current_pt_regs();
	long result;

	if (error == WORK_FIRST || tlk_exit_work()) {
		if (!tlk_request_may_follow(context, first))
			return -EINTR;
		tlk_request_copy(request, regs);
		program->link = 0;
		error = 0;
		if (regs->TLK_NR >= TL_NR_INCREASE)
			error = prepare_step(program, request, regs, &program->link, true);
	}
	if (error || regs->TLK_NR >= TL_NR_INCREASE)
		return make_callless(program, error);
	/* Reading a word may have slept: this looks for pending work once more. */
	result = tlk_request_make_prepared(context, first);
	if (tlk_result_is_special(result) && context->ending == TLK_DONE)
		result = tlk_request_settle(context, result, first);
	return result;
}

/* Is the step that has this link to be followed by its target? */
static bool is_followed(u32 link, const struct pt_regs *regs, long result)
{
	return tl_condition_is_true(LINK_CONDITION(link), result, regs->TLK_ARG2);
}

/*
 * Makes steps until the end, or until something stops it. Returns the result of the last step. The
 * loop is what a step costs. It is that of batch.c, and all that an ordinary request does not need
 * is behind one test of its number.
 */
static long run(struct program *program, const u64 steps)
{
	struct tlk_context *context = &program->context;
	struct tl_request *const end = program->requests + program->end;
	struct tl_request *request = program->requests + program->at;
	struct pt_regs *regs = current_pt_regs();
	u64 left = steps;
	long result = 0;

	while (request != end && left) {
		int error = 0;
		u32 link = 0;

		tlk_request_copy(request, regs);
		if (regs->TLK_NR >= TL_NR_INCREASE)
			error = prepare_step(program, request, regs, &link, false);
		if (unlikely(error || regs->TLK_NR >= TL_NR_INCREASE) || tlk_work_pending()) {
			program->link = link;
			program->made = steps - left;
			result = make_unusual(program, request, error, left == steps);
			link = program->link;
			if (context->ending != TLK_DONE)
				break;
		} else {
			result = tlk_request_call(regs, &tlk_batch_calls);
			if (tlk_result_is_special(result)) {
				program->made = steps - left;
				result = tlk_request_settle(context, result, left == steps);
				if (context->ending != TLK_DONE)
					break;
			}
		}
		tlk_request_complete(request, result);
		left--;
		if (likely(!link || !is_followed(link, regs, result))) {
			request++;
			continue;
		}
		/*
		 * A throttled thread waits at its return to user mode: a loop must not avoid
		 * that.
		 */
		if (&program->requests[LINK_TARGET(link)] <= request &&
		    context->undo & TLK_UNDO_RESUME && tlk_is_throttled())
			context->ending = TLK_SIGNAL;
		/* RCU tasks wait until each thread has slept, and a loop might never sleep. */
		rcu_tasks_classic_qs(current, false);
		request = &program->requests[LINK_TARGET(link)];
		if (unlikely(context->ending != TLK_DONE))
			break;
	}
	program->at = request - program->requests;
	program->made = steps - left;
	return result;
}

static u32 why_stopped(const struct program *program)
{
	if (program->at == program->end)
		return TL_STOPPED_END;
	if (program->context.ending == TLK_DONE)
		return TL_STOPPED_STEPS;
	return tlk_context_why_stopped(&program->context);
}

static void count_steps(struct tlk_ring_counts *counts, const struct program *program)
{
	atomic64_add(program->made - program->callless - program->context.refused,
		     &counts->executed);
	atomic64_add(program->callless, &counts->callless);
	atomic64_add(program->made, &counts->submitted);
	if (unlikely(program->context.refused))
		atomic64_add(program->context.refused, &counts->refused);
	atomic_dec(&counts->inside);
}

static void count(struct tlk_ring_counts *counts, const struct program *program)
{
	count_steps(counts, program);
	if (program->at != program->end)
		tlk_counts_note_stop(counts, why_stopped(program), program->at);
	if (program->context.ending == TLK_BUSY)
		atomic64_inc(&counts->bypassed);
	else if (program->context.ending != TLK_DONE)
		atomic64_inc(&counts->interrupted);
}

/* The thread ends inside a filter's verdict: the steps before that one were made. */
static void abandon(struct tlk_context *context)
{
	const struct program *program = container_of(context, struct program, context);

	count_steps(&tlk_ring_of(context->file)->counts, program);
}

long tlk_program_enter(struct tlk_ring *ring, struct file *file, unsigned long argument)
{
	struct tl_program *shared = tlk_ring_program(ring);
	struct program program tlk_uninitialized;
	u64 steps = READ_ONCE(shared->steps);
	struct pt_regs *regs = current_pt_regs();
	struct tlk_saved_regs saved;
	long result;

	BUILD_BUG_ON(TL_RING_PROGRAM_OFFSET(1) + sizeof(*shared) > TL_RING_BYTES(1));
	BUILD_BUG_ON(TL_RING_PROGRAM_OFFSET(TL_ENTRIES_MAX) + sizeof(*shared) >
		     TL_RING_BYTES(TL_ENTRIES_MAX));
	program.at = READ_ONCE(shared->at);
	if (argument > ring->mask + 1 || program.at > argument)
		return -EINVAL;
	program.requests = ring->requests;
	program.mask = ring->mask;
	program.end = argument;
	program.at = array_index_nospec(program.at, program.end + 1);
	program.callless = 0;
	atomic64_inc(&ring->counts.crossings);
	atomic_inc(&ring->counts.inside);
	saved = tlk_context_begin(&program.context, file, regs, &tlk_batch_calls, abandon);
	result = run(&program, steps);
	count(&ring->counts, &program);
	if (program.made || program.context.ending == TLK_DONE) {
		WRITE_ONCE(shared->at, program.at);
		WRITE_ONCE(shared->steps, steps - program.made);
		WRITE_ONCE(shared->stopped, why_stopped(&program));
		result = program.made;
	}
	tlk_context_end(&program.context, regs, saved);
	return result;
}

/* ---- Programs that workers make ------------------------------------------------------------- */

int tlk_program_begin(struct tlk_worker_program *program, const struct pt_regs *regs)
{
	*program = (struct tlk_worker_program){
		.requests = (struct tl_request __user *)regs->TLK_ARG0,
		.end = regs->TLK_ARG1,
		.at = regs->TLK_ARG4,
		.chain = regs->TLK_ARG3,
		.steps = regs->TLK_ARG2,
	};
	if (!regs->TLK_ARG1 || regs->TLK_ARG1 > TL_ENTRIES_MAX || regs->TLK_ARG4 > regs->TLK_ARG1 ||
	    regs->TLK_ARG3 & ~(unsigned long)TL_PROGRAM_CHAIN)
		return -EINVAL;
	return 0;
}

static int take_user_result(const struct tlk_worker_program *program, unsigned long *argument)
{
	struct tl_request __user *request;
	long result;
	u8 state;

	if (*argument >= program->end)
		return -EINVAL;
	request = &program->requests[array_index_nospec(*argument, program->end)];
	if (get_user(state, &request->state) || get_user(result, &request->result))
		return -EFAULT;
	if (state != TL_DONE || IS_ERR_VALUE(result))
		return -ECANCELED;
	*argument = result;
	return 0;
}

/* Takes the program bits out of the number in the frame. Returns 0 or why there is no call. */
static int prepare_user_step(const struct tlk_worker_program *program, struct pt_regs *regs,
			     struct tl_request *step)
{
	u32 sources = (step->nr & TL_PROGRAM_BITS & ~TL_JUMPS) >> 12;
	unsigned int argument;
	int error = 0;

	regs->TLK_NR = step->nr & TL_NR_MASK;
	if (step->nr & ~(TL_PROGRAM_BITS | TL_NR_MASK))
		error = -ENOSYS;
	else if (step->nr & TL_JUMPS && step->target > program->end)
		error = -EINVAL;
	if (error) {
		step->nr = 0;	/* it does not jump */
		return error;
	}
	for (argument = 0; sources && !error; argument++, sources >>= 2) {
		if (sources & 2)
			error = take_word(argument_of(regs, argument), sources & 1);
		else if (sources & 1)
			error = take_user_result(program, argument_of(regs, argument));
	}
	return error;
}

static long make_user_step(struct tlk_worker_program *program, struct tlk_context *context,
			   struct pt_regs *regs, struct tl_request *step)
{
	int error = prepare_user_step(program, regs, step);
	long result;

	if (error || regs->TLK_NR >= TL_NR_INCREASE) {
		if (tlk_exit_work() && !tlk_request_may_follow(context, false))
			return -EINTR;
		program->calls += error == -ENOSYS;
		context->refused += error == -ENOSYS;
		return error ? error : write_word(regs, regs->TLK_NR == TL_NR_INCREASE);
	}
	if (tlk_work_pending())
		result = tlk_request_make_prepared(context, false);
	else
		result = tlk_request_call(regs, context->calls);
	if (tlk_result_is_special(result) && context->ending == TLK_DONE)
		result = tlk_request_settle(context, result, true);
	program->calls += context->ending == TLK_DONE;
	return result;
}

/*
 * The request is copied as a whole before anything of it is looked at. A program that lies where
 * nothing can be read or written ends with that error.
 */
void tlk_program_step(struct tlk_worker_program *program, struct tlk_context *context)
{
	struct tl_request __user *request = &program->requests[program->at];
	struct pt_regs *regs = current_pt_regs();
	struct tl_request step = {};
	long result;

	if (copy_from_user(&step, request, offsetof(struct tl_request, result)))
		goto fault;
	tlk_request_copy(&step, regs);
	result = make_user_step(program, context, regs, &step);
	if (context->ending != TLK_DONE)
		return;
	if (put_user(result, &request->result))
		goto fault;
	/* Whoever sees TL_DONE sees the result. */
	smp_wmb();
	if (put_user(TL_DONE, &request->state))
		goto fault;
	program->result = result;
	program->steps--;
	if (step.nr & TL_JUMPS && tl_condition_is_true(step.condition, result, regs->TLK_ARG2))
		program->at = step.target;
	else if (program->chain && !(step.nr & TL_JUMPS) && IS_ERR_VALUE(result))
		program->at = program->end;
	else
		program->at++;
	return;
fault:
	program->result = -EFAULT;
	program->at = program->end;
}
