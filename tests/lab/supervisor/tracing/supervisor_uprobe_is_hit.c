// SPDX-License-Identifier: GPL-2.0-only
/*
 * A probe on an instruction of a program in supervisor mode (uprobes: an int3 in its text, the
 * instruction stepped elsewhere) is hit once each time, and the program never notices.
 */
#include <sys/mount.h>

#include "supervisor.h"

#define TRACEFS "/sys/kernel/tracing"
#define EVENTS TRACEFS "/uprobe_events"
#define ENABLE TRACEFS "/events/uprobes/enable"
#define PROFILE TRACEFS "/uprobe_profile"
#define HITS 2000

/* Returns 3 * n + 1; its first instruction is one that cannot be emulated but must be stepped. */
long probed(long n);
__asm__(".pushsection .text\n"
	".globl probed\n"
	"probed:\n\t"
	"lea 1(%rdi, %rdi, 2), %rax\n\t"
	"ret\n"
	".popsection\n");

/* Where in the program's file the function is. */
static unsigned long file_offset(const void *address)
{
	unsigned long start, stop, offset;
	char line[512], permissions[8];
	FILE *maps = fopen("/proc/self/maps", "r");

	CHECK(maps);
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %7s %lx", &start, &stop, permissions, &offset) != 4)
			continue;
		if ((unsigned long)address >= start && (unsigned long)address < stop) {
			fclose(maps);
			return (unsigned long)address - start + offset;
		}
	}
	FAIL("%p is in no mapping", address);
}

static long hits(void)
{
	char text[512], *last;

	CHECK(read_file(PROFILE, text, sizeof(text)) > 0);
	/* file name, event, hits[, ...] */
	last = strstr(text, "tl_probed");
	CHECK(last);
	return atol(last + strlen("tl_probed"));
}

int main(void)
{
	char probe[512], path[256];
	long inside = 0, length;

	if (access(EVENTS, W_OK) < 0)
		mount("tracefs", TRACEFS, "tracefs", 0, NULL);
	if (access(EVENTS, W_OK) < 0)
		SKIP("this kernel has no uprobe events");
	length = MUST(readlink("/proc/self/exe", path, sizeof(path) - 1));
	path[length] = '\0';
	snprintf(probe, sizeof(probe), "p:tl_probed %s:0x%lx", path,
		 file_offset((const void *)probed));
	enter_supervisor(0);
	CHECK_EQ(write_file(EVENTS, probe), strlen(probe));
	CHECK_EQ(write_file(ENABLE, "1"), 1);
	for (long i = 0; i < HITS; i++) {
		sys(SYS_getppid);
		inside += cpl() == 0;
		CHECK_EQ(probed(i), 3 * i + 1);
	}
	CHECK_EQ(hits(), HITS);
	CHECK_EQ(write_file(ENABLE, "0"), 1);
	CHECK_EQ(probed(5), 16);
	CHECK_EQ(write_file(EVENTS, "-:tl_probed"), strlen("-:tl_probed"));
	CHECK_WITHIN(inside, MOST(HITS), HITS);
	return 0;
}
