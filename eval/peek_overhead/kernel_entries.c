// SPDX-License-Identifier: GPL-2.0-only
/*
 * Loops of one kind of kernel entry each, so that what a probe adds to one can be told from what it
 * adds to many: `peek-calls KIND COUNT`. It measures nothing itself.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "measure.h"

#define PAGE 4096u
#define PAGES 256u
#define COUNT_MAX 100000000u

static void make_calls(unsigned int count)
{
	while (count--)
		syscall(SYS_getppid);
}

/* Each page is given back and touched again; giving back is one call for all PAGES. */
static void make_faults(unsigned int count)
{
	volatile uint8_t *pages = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED)
		measure_fail("no memory: %s", strerror(errno));
	madvise((void *)pages, PAGES * PAGE, MADV_NOHUGEPAGE);
	for (unsigned int i = 0; i < count; i++) {
		if (i % PAGES == 0 && madvise((void *)pages, PAGES * PAGE, MADV_DONTNEED))
			measure_fail("pages are not given back: %s", strerror(errno));
		pages[i % PAGES * PAGE] = 1;
	}
}

/* A byte goes to a child and back: two switches of processes, four calls. */
static void make_switches(unsigned int count)
{
	int there[2], back[2];
	char byte = 0;

	if (pipe(there) || pipe(back))
		measure_fail("no pipe: %s", strerror(errno));
	if (!fork()) {
		close(there[1]);	/* else the child is its own writer, and reads for ever */
		while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
			;
		_exit(0);
	}
	while (count--)
		if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
			measure_fail("a byte did not come back: %s", strerror(errno));
}

static const struct {
	const char *name;
	void (*make)(unsigned int count);
} kinds[] = {
	{ "calls", make_calls },
	{ "faults", make_faults },
	{ "switches", make_switches },
};

int main(int argc, char **argv)
{
	for (unsigned int i = 0; argc == 3 && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (!strcmp(argv[1], kinds[i].name)) {
			kinds[i].make((unsigned int)measure_parse_number("COUNT", argv[2],
									 COUNT_MAX));
			return 0;
		}
	}
	measure_fail("usage: peek-calls calls|faults|switches COUNT");
}
