/* SPDX-License-Identifier: GPL-2.0-only
 *
 * What test_lab_model.py runs in a guest under the model: regions whose reads and system calls are
 * known. With the argument "crash" it then crashes the kernel inside a region.
 */
#include <trapless_model.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BYTES_MAX (512ul << 10)
#define STRIDE 128
#define PASSES 10
#define ROUNDS 3

static unsigned long sink;

static __attribute__((noinline)) void walk(const volatile unsigned char *bytes, unsigned long width)
{
	unsigned long at, sum = 0;

	for (at = 0; at < width; at += STRIDE)
		sum += bytes[at];
	sink += sum;
}

/* ROUNDS times, for a clock's interrupt may come in one. */
static void regions(const unsigned char *bytes, unsigned long width)
{
	int round, pass;

	for (round = 0; round < ROUNDS; round++) {
		tl_model_label(width);
		tl_model_cold();
		walk(bytes, width);
		tl_model_begin();
		for (pass = 0; pass < PASSES; pass++) {
			walk(bytes, width);
			syscall(SYS_getppid);
		}
		tl_model_end();
	}
}

int main(int argc, char **argv)
{
	unsigned char *bytes = mmap(NULL, BYTES_MAX, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int trigger;

	if (bytes == MAP_FAILED)
		return 1;
	memset(bytes, 1, BYTES_MAX);
	tl_model_end(); /* of nothing: an event */
	tl_model_on();
	regions(bytes, 64 << 10);
	regions(bytes, BYTES_MAX);
	tl_model_off();
	walk(bytes, BYTES_MAX); /* not counted */
	tl_model_on();
	regions(bytes, BYTES_MAX);
	if (argc > 1 && strcmp(argv[1], "crash") == 0) {
		trigger = open("/proc/sysrq-trigger", O_WRONLY);
		tl_model_begin();
		return write(trigger, "c", 1) == 1;
	}
	printf("%lu\n", sink);
	return 0;
}
