// SPDX-License-Identifier: GPL-2.0-only
/*
 * Simulates a running virtual machine for an observer. It maps the memory that a real machine has
 * left, for itself alone, and changes in it what a running kernel changes: the clock, and on each
 * CPU the current task. A thread for each CPU has the name of an emulator's. Nothing is executed of
 * the guest.
 *
 *   qemu-system-x86_64 -name NAME -m SIZE FILE CLOCK BUSY-PERCENT IDLE-TASK BUSY-TASK CURRENT...
 *
 * is its command line, as that of the emulator that it is taken for: FILE has the memory, CLOCK and
 * each CPU's CURRENT are offsets in it, and both tasks are pointers of the guest.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FIRST 5			/* argument of this program's own */
#define CPUS_MAX 64
#define TICK_NS 10000000l
#define PAGE 4096

struct cpu {
	pthread_t thread;
	unsigned int number;
	volatile uint64_t *current;
};

static volatile uint64_t *guest_clock;
static unsigned int busy_percent;
static uint64_t idle_task, busy_task;
static struct cpu cpus[CPUS_MAX];

static uint64_t number(const char *text)
{
	return strtoull(text, NULL, 0);
}

static void *run(void *argument)
{
	struct cpu *cpu = argument;
	unsigned int seed = (unsigned int)getpid() * 64 + cpu->number;
	struct timespec next;
	char name[16];

	snprintf(name, sizeof(name), "CPU %u/TCG", cpu->number);
	prctl(PR_SET_NAME, name);
	clock_gettime(CLOCK_MONOTONIC, &next);
	for (;;) {
		bool busy = (unsigned int)rand_r(&seed) / 16 % 100 < busy_percent;

		*cpu->current = busy ? busy_task : idle_task;
		if (!cpu->number)
			++*guest_clock;
		next.tv_nsec += TICK_NS;
		next.tv_sec += next.tv_nsec / 1000000000;
		next.tv_nsec %= 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
	return NULL;
}

/* The memory, for this process alone. Pages that are only read stay those of the file. */
static uint8_t *map(const char *path, size_t *length)
{
	int descriptor = open(path, O_RDONLY | O_CLOEXEC);
	volatile const uint8_t *page;
	struct stat status;
	uint8_t *memory;

	if (descriptor < 0 || fstat(descriptor, &status))
		return NULL;
	*length = (size_t)status.st_size;
	memory = mmap(NULL, *length, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor, 0);
	close(descriptor);
	if (memory == MAP_FAILED)
		return NULL;
	for (page = memory; page < memory + *length; page += PAGE)
		(void)*page;	/* an observer looks at pages that were touched */
	return memory;
}

int main(int argc, char **argv)
{
	unsigned int count = 0;
	uint8_t *memory;
	size_t length;
	char byte;

	if (argc < FIRST + 6 || argc > FIRST + 5 + CPUS_MAX) {
		fprintf(stderr, "peek-fleet simulates a machine for experiment peek-fleet\n");
		return 2;
	}
	memory = map(argv[FIRST], &length);
	if (!memory) {
		perror(argv[FIRST]);
		return 1;
	}
	guest_clock = (volatile uint64_t *)(memory + number(argv[FIRST + 1]) % length);
	busy_percent = (unsigned int)number(argv[FIRST + 2]);
	idle_task = number(argv[FIRST + 3]);
	busy_task = number(argv[FIRST + 4]);
	for (argv += FIRST + 5; *argv; argv++, count++) {
		struct cpu *cpu = &cpus[count];

		cpu->number = count;
		cpu->current = (volatile uint64_t *)(memory + number(*argv) % length);
		if (pthread_create(&cpu->thread, NULL, run, cpu))
			return 1;
	}
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;	/* until whoever started it has ended */
	return 0;
}
