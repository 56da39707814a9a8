// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Executes programs of calls by plain system calls, with the results that the module would give. It
 * owns what a step is without the module: where its arguments come from, and which step is the
 * next. batch.c owns when a program is flushed, and by which backend.
 */
#include "internal.h"
#include "enter.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>

#define ERRNO_MAX 4095

/*
 * The requests of the program, and the ID of the thread that executes it. process_vm_readv(2) gets
 * this ID and not the process's: the first thread may have ended, and then its ID leads to no
 * memory.
 */
struct ring {
	struct tl_request *requests;
	uint32_t end;
	uint64_t tid;
	enum tl_call_class least;	/* of calls: see tl_plain_execute() */
};

static bool is_error(int64_t result)
{
	return result < 0 && result >= -ERRNO_MAX;
}

/*
 * Copies a word where one of the addresses need not exist, by way of a pipe that lives as long as
 * the copy. It takes five system calls, and none that a sandbox refuses.
 */
static int copy_by_pipe(void *to, const void *from, size_t bytes)
{
	int fds[2];
	long copied = raw_syscall(SYS_pipe2, (uintptr_t)fds, O_CLOEXEC | O_NONBLOCK, 0, 0, 0, 0);

	if (copied < 0)
		return (int)copied;
	for (int i = 0; i < 2; i++) {
		fds[i] = tl_descriptor_keep(fds[i]);
		if (fds[i] < 0)
			copied = fds[i];
	}
	if (!copied)
		copied = raw_syscall(SYS_write, (uint64_t)fds[1], (uintptr_t)from, bytes, 0, 0, 0);
	if (copied == (long)bytes)
		copied = raw_syscall(SYS_read, (uint64_t)fds[0], (uintptr_t)to, bytes, 0, 0, 0);
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			raw_syscall(SYS_close, (uint64_t)fds[i], 0, 0, 0, 0, 0);
	if (copied < 0)
		return (int)copied;
	return copied == (long)bytes ? 0 : -EFAULT;
}

/*
 * Copies 4 or 8 bytes between `word` and an address that need not exist. The kernel does it: so a
 * wrong address is an error as with the module, and not the end of the program. It refuses to copy
 * from the module's ring, whose address certainly exists. Filters of containers refuse the system
 * call for such copies, and then a pipe copies the word. A filter never allows again what it has
 * refused, so it is asked no more.
 */
static int copy_word(const struct ring *ring, void *word, uint64_t address, size_t bytes, long nr)
{
	static bool refused;	/* relaxed: a thread that reads an old value asks once more */
	struct iovec own = { .iov_base = word, .iov_len = bytes };
	struct iovec other = { .iov_base = (void *)(uintptr_t)address, .iov_len = bytes };
	uint64_t offset = address - (uintptr_t)ring->requests;
	long copied;

	if (offset <= ring->end * sizeof(struct tl_request) - bytes) {
		if (nr == SYS_process_vm_readv)
			memcpy(word, other.iov_base, bytes);
		else
			memcpy(other.iov_base, word, bytes);
		return 0;
	}
	if (!__atomic_load_n(&refused, __ATOMIC_RELAXED)) {
		copied = raw_syscall(nr, ring->tid, (uintptr_t)&own, 1, (uintptr_t)&other, 1, 0);
		if (copied == (long)bytes)
			return 0;
		if (copied >= 0 || copied == -EFAULT)
			return -EFAULT;
		__atomic_store_n(&refused, true, __ATOMIC_RELAXED);
	}
	if (nr == SYS_process_vm_readv)
		return copy_by_pipe(word, other.iov_base, bytes);
	return copy_by_pipe(other.iov_base, word, bytes);
}

static int take_word(const struct ring *ring, __u64 *argument, size_t bytes)
{
	__u64 word = 0;	/* little-endian: the lower half is the first */
	int error = copy_word(ring, &word, *argument, bytes, SYS_process_vm_readv);

	if (!error)
		*argument = word;
	return error;
}

static int take_result(const struct ring *ring, __u64 *argument)
{
	const struct tl_request *request;

	if (*argument >= ring->end)
		return -EINVAL;
	request = &ring->requests[*argument];
	if (__atomic_load_n(&request->state, __ATOMIC_ACQUIRE) != TL_DONE ||
	    is_error(request->result))
		return -ECANCELED;
	*argument = (__u64)request->result;
	return 0;
}

static int take_arguments(const struct ring *ring, struct tl_request *step)
{
	int error = 0;

	for (int i = 0; i < 6 && !error; i++) {
		uint32_t source = step->nr & TL_WORD64(i);

		if (source == TL_RESULT(i))
			error = take_result(ring, &step->args[i]);
		else if (source)
			error = take_word(ring, &step->args[i], source == TL_WORD64(i) ? 8 : 4);
	}
	return error;
}

static int64_t write_word(const struct ring *ring, const struct tl_request *step)
{
	uint64_t word = 0;
	int error = 0;

	if (step->nr == TL_NR_INCREASE)
		error = copy_word(ring, &word, step->args[0], sizeof(word), SYS_process_vm_readv);
	word += step->args[1];
	if (!error)
		error = copy_word(ring, &word, step->args[0], sizeof(word), SYS_process_vm_writev);
	return error ? error : (int64_t)word;
}

/* Makes the step, a copy of its request. Returns whether it is a call, made or refused. */
static bool make_step(const struct ring *ring, struct tl_request *step, struct tl_stats *counts)
{
	uint32_t sources = step->nr & (TL_PROGRAM_BITS & ~TL_JUMPS);
	int error = 0;
	bool made;

	if (step->nr & ~(TL_PROGRAM_BITS | TL_NR_MASK))
		error = -ENOSYS;
	else if (step->nr & TL_JUMPS && step->target > ring->end)
		error = -EINVAL;
	else if (sources)
		error = take_arguments(ring, step);
	step->nr &= TL_NR_MASK;
	if (error || step->nr >= TL_NR_INCREASE) {
		step->result = error ? error : write_word(ring, step);
		counts->refused += error == -ENOSYS;
		return false;
	}
	made = tl_plain_execute(step, ring->least);
	counts->crossings += made;
	counts->executed += made;
	counts->refused += !made;
	return true;
}

void tl_program_complete_step(struct tl_program *program, struct tl_request *requests, uint32_t end,
			      const struct tl_request *step, int64_t result)
{
	struct tl_request *request = &requests[program->at];
	bool jumps = step->nr & TL_JUMPS && !(step->nr & ~(TL_PROGRAM_BITS | TL_NR_MASK)) &&
		     step->target <= end;

	request->result = result;
	tl_plain_complete(request);
	if (jumps && tl_condition_is_true(step->condition, result, step->args[2]))
		program->at = step->target;
	else
		program->at++;
	/* If a handler leaves the flush from here on, the next flush goes on behind this step. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static struct ring ring_of(struct tl_request *requests, uint32_t end, enum tl_call_class least)
{
	return (struct ring){
		.requests = requests,
		.end = end,
		.tid = (uint64_t)raw_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0),
		.least = least,
	};
}

/* Makes the step at program->at, which *step is a copy of from then on. Returns as make_step(). */
static bool make_next(const struct ring *ring, struct tl_program *program, struct tl_request *step,
		      struct tl_stats *counts)
{
	uint32_t nr;
	bool made;

	/* Read once: the step may write to its own request. */
	*step = ring->requests[program->at];
	nr = step->nr;
	program->steps--;
	made = make_step(ring, step, counts);
	step->nr = nr;
	tl_program_complete_step(program, ring->requests, ring->end, step, step->result);
	return made;
}

int tl_program_execute(struct tl_program *program, struct tl_request *requests, uint32_t end,
		       struct tl_stats *counts)
{
	const struct ring ring = ring_of(requests, end, TL_CALL_BATCH);
	struct tl_request step;

	while (program->at < end) {
		if (!program->steps)
			return -ETIME;
		if (make_next(&ring, program, &step, counts) && step.result == -EINTR &&
		    program->at < end) {
			counts->interrupted++;
			return -EINTR;
		}
	}
	return 0;
}

int tl_program_serve(struct tl_program *program, struct tl_request *requests, uint32_t end,
		     bool chain, int64_t *result, struct tl_stats *counts)
{
	const struct ring ring = ring_of(requests, end, TL_CALL_ANY);
	const uint32_t unknown = ~(TL_PROGRAM_BITS | TL_NR_MASK);
	struct tl_request step;

	while (program->at < end) {
		if (!program->steps)
			return -ETIME;
		make_next(&ring, program, &step, counts);
		*result = step.result;
		if (chain && is_error(step.result) &&
		    (!(step.nr & TL_JUMPS) || step.nr & unknown || step.target > end))
			program->at = end;
	}
	return 0;
}
