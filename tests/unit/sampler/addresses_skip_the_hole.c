// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Physical addresses are found in a file that leaves out the hole below 4 GiB; addresses in the
 * hole, past the end, or across either are refused, and so are files that hold no memory.
 */
#include "plan_memory.h"

#define GIB (1ull << 30)

static uint64_t read8(struct source *source, uint64_t at, int want)
{
	uint64_t word = 0;

	CHECK_EQ(source_read(source, at, &word, sizeof(word)), want);
	return word;
}

static void with_a_hole(void)
{
	struct memory memory = memory_new(5 * GIB);	/* sparse */
	struct source source;
	char text[96];

	*(uint64_t *)(memory.bytes + 3 * GIB - 8) = 1;
	*(uint64_t *)(memory.bytes + 3 * GIB) = 2;
	*(uint64_t *)(memory.bytes + 5 * GIB - 8) = 3;
	snprintf(text, sizeof(text), "%s,hole=0xc0000000", memory.path);
	source = source_of(text);
	CHECK_EQ(source.size, 6 * GIB);
	CHECK_EQ(read8(&source, 3 * GIB - 8, 0), 1);
	read8(&source, 3 * GIB - 7, -EFAULT);
	read8(&source, 3 * GIB, -EFAULT);
	read8(&source, 4 * GIB - 8, -EFAULT);
	CHECK_EQ(read8(&source, 4 * GIB, 0), 2);
	CHECK_EQ(read8(&source, 6 * GIB - 8, 0), 3);
	read8(&source, 6 * GIB - 7, -EFAULT);
	read8(&source, UINT64_MAX - 3, -EFAULT);
	source_close(&source);
	munmap(memory.bytes, memory.size);
}

static void without_one(void)
{
	struct memory memory = memory_new(8192);
	struct source source = source_of(memory.path);

	CHECK_EQ(source.size, 8192);
	read8(&source, 8184, 0);
	read8(&source, 8185, -EFAULT);
	read8(&source, 8192, -EFAULT);
	read8(&source, 4 * GIB, -EFAULT);
	source_close(&source);
}

static void refused(const char *text, const char *reason)
{
	struct source source;
	char error[SOURCE_ERROR_BYTES] = "";

	CHECK(source_open(&source, text, error) < 0);
	if (!strstr(error, reason))
		FAIL("%s: %s", text, error);
}

int main(void)
{
	with_a_hole();
	without_one();
	refused("ram:/nowhere/at/all", "No such file");
	refused("ram:/", "not a file that holds memory");
	refused("ram:/dev/null", "not a file that holds memory");
	refused("ram:x,hole=monkeys", "not of the form hole=NUMBER");
	refused("ram:x,hole=0x100000001", "not below 4 GiB");
	refused("ram", "is not a source");
	refused("tape:0", "there are ram:FILE");
	refused("process:monkeys", "not the number of a process");
	refused("process:0", "not the number of a process");
	return 0;
}
