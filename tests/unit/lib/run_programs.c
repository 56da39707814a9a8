// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs programs of calls that tests/call_programs.py made, on whichever backend the environment
 * names, each as a batch and then by a worker, and writes what became of it: results, memory and
 * file. Standard input and output have the layouts below, one after the other: two outputs for an
 * input. Without input it does nothing.
 *
 * Some programs use what makes work for the thread that makes their calls, between two steps: pipes
 * whose first byte completes a request of io_uring, so that its count of completions, a word,
 * grows; and a page that can be neither read nor written until a descriptor is closed.
 */
#include "lib_check.h"
#include "uring.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define ENTRIES 32u
#define WORDS 16
#define BUFFER_SHOWN 256u
#define FILE_NUMBER 10
#define MEMORY_ADDRESS 0x10000000ul	/* the words, and a page behind them the buffer */
#define MEMORY_BYTES (17u * 4096)
#define PAGE_BYTES 4096u
#define HELD_ADDRESS 0x18000000ul	/* the page that HELD_NUMBER holds */
#define HELD_NUMBER 41
#define TAIL 0x1c000000ul	/* in arguments: where io_uring counts its completions */
#define PIPES 2
#define PIPE_NUMBER 42			/* write ends; behind them the ends for reading */

/* Bits of `uses` and `offered`. */
#define COMPLETIONS 1u
#define HELD_PAGE 2u

struct input {
	uint32_t requests;	/* that many struct tl_request follow */
	uint32_t steps;		/* the budget of each of the two flushes */
	uint64_t uses;
	uint64_t words[WORDS];
};

struct output {
	int32_t flushed[2];	/* what the flushes returned; 0 of a worker */
	uint32_t at[2];		/* where they stopped; 0 of a worker */
	int64_t position;
	uint64_t file_bytes;	/* that many bytes follow */
	uint64_t mask;		/* of umask(2) */
	uint64_t offered;	/* what of `uses` there was */
	uint64_t words[WORDS];
	uint64_t held[WORDS];	/* the page, once it can be read */
	unsigned char buffer[BUFFER_SHOWN];
	struct { int64_t result, done; } requests[ENTRIES];
};

/* ---- What makes work for a thread ---------------------------------------------------------- */

static void place(int descriptor, int number)
{
	MUST(dup2(descriptor, number));
	MUST(close(descriptor));
}

static void place_pipes(void)
{
	int ends[2];

	for (int i = 0; i < PIPES; i++) {
		MUST(pipe(ends));
		place(ends[1], PIPE_NUMBER + i);
		place(ends[0], PIPE_NUMBER + PIPES + i);
	}
}

static bool has_uring(void)
{
	struct io_uring_params parameters = { 0 };
	long descriptor = sys(SYS_io_uring_setup, 2, &parameters);

	if (descriptor >= 0)
		close((int)descriptor);
	return descriptor >= 0;
}

/* The library reads words by another call than the module, which older kernels refuse there. */
static bool library_may_read(void *address, bool module)
{
	uint32_t word;
	struct iovec own = { &word, sizeof(word) }, other = { address, sizeof(word) };

	return module || process_vm_readv(getpid(), &own, 1, &other, 1, 0) == sizeof(word);
}

/*
 * Has the pipes complete requests of this thread, which alone does the work for that: a program
 * that a worker makes has its pipes and no completions.
 */
static bool offer_completions(struct uring *uring, bool module, bool polled)
{
	place_pipes();
	if (!polled || !has_uring())
		return false;
	*uring = uring_open();
	if (!library_may_read(uring->queue, module))
		return false;
	for (int i = 0; i < PIPES; i++)
		uring_poll(uring, PIPE_NUMBER + PIPES + i);
	return true;
}

/* Without completions the count is 0. */
static void place_tail(struct tl_request *requests, const struct uring *uring, bool offered)
{
	static uint32_t none;
	const uint32_t *tail = &none;

	if (offered)
		tail = uring_word(uring, uring->parameters.cq_off.tail);
	for (unsigned int i = 0; i < ENTRIES; i++)
		for (int k = 0; k < 6; k++)
			if (requests[i].args[k] == TAIL)
				requests[i].args[k] = (uintptr_t)tail;
}

static void end_completions(struct uring *uring)
{
	for (int i = 0; i < 2 * PIPES; i++)
		MUST(close(PIPE_NUMBER + i));
	if (!uring->queue)
		return;
	MUST(munmap(uring->queue, PAGE_BYTES));
	MUST(munmap(uring->requests, PAGE_BYTES));
	MUST(close(uring->fd));
}

/* Without userfaultfd the page is as any other, and the descriptor one that does nothing. */
static bool offer_held_page(void)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_SIGBUS };
	struct uffdio_register range = {
		.range = { .start = HELD_ADDRESS, .len = PAGE_BYTES },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	void *page = (void *)HELD_ADDRESS;
	long descriptor = sys(SYS_userfaultfd, UFFD_USER_MODE_ONLY | O_CLOEXEC);

	CHECK(mmap(page, PAGE_BYTES, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == page);
	if (descriptor < 0) {
		place(MUST(open("/dev/null", O_RDONLY)), HELD_NUMBER);
		return false;
	}
	place((int)descriptor, HELD_NUMBER);
	MUST(ioctl(HELD_NUMBER, UFFDIO_API, &api));
	MUST(ioctl(HELD_NUMBER, UFFDIO_REGISTER, &range));
	return true;
}

static void end_held_page(struct output *output)
{
	close(HELD_NUMBER);
	memcpy(output->held, (void *)HELD_ADDRESS, sizeof(output->held));
	MUST(munmap((void *)HELD_ADDRESS, PAGE_BYTES));
}

/* ---- Programs ------------------------------------------------------------------------------ */

static bool take(void *to, size_t bytes)
{
	return fread(to, 1, bytes, stdin) == bytes;
}

static void queue(struct tl_batch *batch, const struct tl_request *from)
{
	const __u64 *args = from->args;
	int slot = tl_batch_add(batch, from->nr, args[0], args[1], args[2], args[3], args[4],
				args[5]);

	CHECK(slot >= 0);
	/* Also what tl_batch_jump() would refuse. */
	batch->requests[slot].condition = from->condition;
	batch->requests[slot].target = from->target;
	batch->program |= TL_PROGRAM_STEPS | TL_PROGRAM_JUMPS | TL_PROGRAM_LOOPS;
}

static void make_batch(const struct input *input, const struct tl_request *requests,
		       struct output *output)
{
	struct tl_batch *batch = batch_new(ENTRIES);

	for (uint32_t i = 0; i < input->requests; i++)
		queue(batch, &requests[i]);
	for (int i = 0; i < 2; i++) {
		output->flushed[i] = tl_batch_flush_steps(batch, input->steps);
		output->at[i] = tl_batch_at(batch);
	}
	for (unsigned int i = 0; i < input->requests && i < ENTRIES; i++) {
		output->requests[i].done = tl_batch_done(batch, i);
		output->requests[i].result =
			output->requests[i].done ? tl_batch_result(batch, i) : 0;
	}
	tl_batch_destroy(batch);
}

/*
 * Two flushes with a budget each are one request with both budgets. Once the result is taken, a
 * step is made or canceled.
 */
static void make_by_worker(struct tl_psc *psc, const struct input *input,
			   struct tl_request *requests, struct output *output)
{
	int slot = tl_psc_add_program(psc, requests, input->requests, 2ull * input->steps);
	bool made[ENTRIES];
	int64_t result;

	CHECK(slot >= 0);
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	for (unsigned int i = 0; i < input->requests; i++)
		made[i] = requests[i].state == TL_DONE;
	CHECK_EQ(tl_psc_result(psc, (unsigned int)slot, &result), 1);
	for (unsigned int i = 0; i < input->requests && i < ENTRIES; i++) {
		if (requests[i].state != TL_DONE)
			CHECK_EQ(requests[i].state, TL_CANCELED);
		output->requests[i].done = made[i] || result != -ETIME;
		output->requests[i].result = output->requests[i].done ? requests[i].result : 0;
	}
}

/* By a worker, or as a batch. */
static void make_program(const struct input *input, const struct tl_request *given,
			 struct tl_psc *psc, bool by_worker, struct output *output)
{
	bool module = tl_psc_backend(psc) == TL_BACKEND_MODULE;
	struct tl_request requests[ENTRIES];
	struct uring uring = { 0 };

	if (input->uses & COMPLETIONS && offer_completions(&uring, module, !by_worker))
		output->offered |= COMPLETIONS;
	if (input->uses & HELD_PAGE && offer_held_page())
		output->offered |= HELD_PAGE;
	memcpy(requests, given, sizeof(requests));
	place_tail(requests, &uring, output->offered & COMPLETIONS);
	if (by_worker)
		make_by_worker(psc, input, requests, output);
	else
		make_batch(input, requests, output);
	if (input->uses & COMPLETIONS)
		end_completions(&uring);
	if (input->uses & HELD_PAGE)
		end_held_page(output);
}

static void run(const struct input *input, const struct tl_request *given, struct tl_psc *psc,
		bool by_worker, unsigned char *memory)
{
	struct output output = { .flushed = { 0 } };
	struct stat st;
	char *text;
	int file = MUST(memfd_create("programs", 0));

	MUST(dup2(file, FILE_NUMBER));
	umask(022);
	memset(memory, 0, MEMORY_BYTES);
	memcpy(memory, input->words, sizeof(input->words));
	make_program(input, given, psc, by_worker, &output);
	output.position = lseek(FILE_NUMBER, 0, SEEK_CUR);
	output.mask = umask(022);
	memcpy(output.words, memory, sizeof(output.words));
	memcpy(output.buffer, memory + 4096, BUFFER_SHOWN);
	MUST(fstat(FILE_NUMBER, &st));
	output.file_bytes = (uint64_t)st.st_size;
	text = malloc((size_t)st.st_size + 1);
	CHECK_EQ(pread(FILE_NUMBER, text, (size_t)st.st_size, 0), st.st_size);
	CHECK_EQ(fwrite(&output, sizeof(output), 1, stdout), 1);
	CHECK_EQ(fwrite(text, 1, (size_t)st.st_size, stdout), st.st_size);
	free(text);
	close(FILE_NUMBER);
	close(file);
}

int main(void)
{
	unsigned char *memory = mmap((void *)MEMORY_ADDRESS, MEMORY_BYTES, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	struct tl_request requests[ENTRIES] = { { 0 } };
	struct tl_psc *psc = psc_new(4, 0, 1);
	struct tl_stats stats = { .size = sizeof(stats) };
	uint64_t programs = 0;
	struct input input;

	CHECK(memory == (void *)MEMORY_ADDRESS);
	for (; take(&input, sizeof(input)); programs++) {
		CHECK(input.requests <= ENTRIES);
		CHECK(take(requests, input.requests * sizeof(requests[0])));
		run(&input, requests, psc, false, memory);
		run(&input, requests, psc, true, memory);
	}
	CHECK_EQ(tl_psc_get_stats(psc, &stats), 0);
	/* The module's worker made the calls, and no thread in its place: it has entered once. */
	if (tl_psc_backend(psc) == TL_BACKEND_MODULE)
		CHECK_WITHIN(stats.crossings, programs, programs + 1);
	tl_psc_destroy(psc);
	return 0;
}
