// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A file that is cut while it is mapped ends the source, at once where pages are lost, at the next
 * look where only the last page's end is; it never ends the process. A load elsewhere that is
 * wrong still does.
 */
#include "plan_memory.h"

#define SIZE (64u << 10)

static void loses_pages(void)
{
	struct memory memory = memory_new(SIZE);
	struct source source = source_of(memory.path);
	uint8_t into[4096];
	uint32_t word;

	memory.bytes[SIZE - 4] = 42;
	CHECK_EQ(source_read(&source, SIZE - 4, &word, 4), 0);
	CHECK_EQ(word, 42);
	CHECK_EQ(source_check(&source), 0);
	CHECK_EQ(ftruncate(memory.file, SIZE / 2), 0);
	CHECK_EQ(source_read(&source, SIZE / 2 + 4096, into, sizeof(into)), -ENODEV);
	CHECK_EQ(source_read(&source, 0, &word, 4), -ENODEV);
	CHECK_EQ(source_check(&source), -ENODEV);
	source_close(&source);
}

static void loses_the_end_of_a_page(void)
{
	struct memory memory = memory_new(SIZE);
	struct source source = source_of(memory.path);

	CHECK_EQ(ftruncate(memory.file, SIZE - 100), 0);
	CHECK_EQ(source_check(&source), -ENODEV);
	source_close(&source);
}

/* Growing hurts nobody: what was mapped is still there. */
static void grows(void)
{
	struct memory memory = memory_new(SIZE);
	struct source source = source_of(memory.path);
	uint64_t word;

	CHECK_EQ(ftruncate(memory.file, 2 * SIZE), 0);
	CHECK_EQ(source_check(&source), 0);
	CHECK_EQ(source_read(&source, SIZE - 8, &word, 8), 0);
	CHECK_EQ(source_read(&source, SIZE, &word, 8), -EFAULT);
	source_close(&source);
}

static void other_faults_are_not_hidden(void)
{
	struct memory mapped = memory_new(SIZE), other = memory_new(SIZE);
	pid_t child = fork();
	int status;

	if (!child) {
		source_of(mapped.path);	/* its handler is in place */
		CHECK_EQ(ftruncate(other.file, 0), 0);
		(void)*(volatile uint8_t *)other.bytes;
		_exit(0);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
}

static void one_file_at_a_time(void)
{
	struct memory memory = memory_new(SIZE);
	struct source first = source_of(memory.path), second;
	char error[SOURCE_ERROR_BYTES] = "";

	CHECK_EQ(source_open(&second, memory.path, error), -EBUSY);
	CHECK(strstr(error, "another file"));
	source_close(&first);
	first = source_of(memory.path);
	source_close(&first);
}

int main(void)
{
	loses_pages();
	loses_the_end_of_a_page();
	grows();
	one_file_at_a_time();
	other_faults_are_not_hidden();
	return 0;
}
