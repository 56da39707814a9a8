// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs programs of calls that tests/programs.py made, on whichever backend the environment names,
 * each as a batch and then by a worker, and writes what became of it: results, memory and file.
 * Standard input and output have the layouts below, one after the other: two outputs for an input.
 * Without input it does nothing.
 */
#include "lib_check.h"

#include <sys/mman.h>
#include <sys/stat.h>

#define ENTRIES 32u
#define WORDS 16
#define BUFFER_SHOWN 256u
#define FILE_NUMBER 10
#define MEMORY_ADDRESS 0x10000000ul	/* the words, and a page behind them the buffer */
#define MEMORY_BYTES (17u * 4096)

struct input {
	uint32_t requests;	/* that many struct tl_request follow */
	uint32_t steps;		/* the budget of each of the two flushes */
	uint64_t words[WORDS];
};

struct output {
	int32_t flushed[2];	/* what the flushes returned; 0 of a worker */
	uint32_t at[2];		/* where they stopped; 0 of a worker */
	int64_t position;
	uint64_t file_bytes;	/* that many bytes follow */
	uint64_t mask;		/* of umask(2) */
	uint64_t words[WORDS];
	unsigned char buffer[BUFFER_SHOWN];
	struct { int64_t result, done; } requests[ENTRIES];
};

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
	for (unsigned int i = 0; i < input->requests; i++) {
		output->requests[i].done = tl_batch_done(batch, i);
		output->requests[i].result =
			output->requests[i].done ? tl_batch_result(batch, i) : 0;
	}
	tl_batch_destroy(batch);
}

/* Two flushes with a budget each are one request with both budgets. */
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
	for (unsigned int i = 0; i < input->requests; i++) {
		CHECK_EQ(requests[i].state, TL_DONE);
		output->requests[i].done = made[i] || result != -ETIME;
		output->requests[i].result = output->requests[i].done ? requests[i].result : 0;
	}
}

/* By a worker of psc, or as a batch if that is NULL. */
static void run(const struct input *input, const struct tl_request *given, struct tl_psc *psc,
		unsigned char *memory)
{
	struct output output = { .flushed = { 0 } };
	struct tl_request requests[ENTRIES];
	struct stat st;
	char *text;
	int file = MUST(memfd_create("programs", 0));

	MUST(dup2(file, FILE_NUMBER));
	umask(022);
	memset(memory, 0, MEMORY_BYTES);
	memcpy(memory, input->words, sizeof(input->words));
	memcpy(requests, given, sizeof(requests));
	if (psc)
		make_by_worker(psc, input, requests, &output);
	else
		make_batch(input, requests, &output);
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
		run(&input, requests, NULL, memory);
		run(&input, requests, psc, memory);
	}
	CHECK_EQ(tl_psc_get_stats(psc, &stats), 0);
	/* The module's worker made the calls, and no thread in its place: it has entered once. */
	if (tl_psc_backend(psc) == TL_BACKEND_MODULE)
		CHECK_WITHIN(stats.crossings, programs, programs + 1);
	tl_psc_destroy(psc);
	return 0;
}
