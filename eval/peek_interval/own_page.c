// SPDX-License-Identifier: GPL-2.0-only
/*
 * A machine that reads a page of its own, by the ways in which peek reads machines that are not
 * virtual ones: /proc/kcore and RDMA READ, and beside them a file that is mapped. It owns the page,
 * and where each way has it. The sampler reads, and prints its rows.
 *
 *	own-page SAMPLER BYTES,... READS [HOST,PORT,KEY_FILE]
 *
 * Without the last argument there is no RDMA.
 */
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "announce.h"
#include "measure.h"

#define PAGE ANNOUNCE_PAGE
#define PATTERN 0xa5	/* in all bytes of the page: what reads must find */
#define SEGMENTS_MAX 64

static void read_whole(int file, void *into, size_t length, uint64_t offset)
{
	if (pread(file, into, length, (off_t)offset) != (ssize_t)length)
		measure_fail("/proc/kcore cannot be read: %m");
}

/* Where /proc/kcore has a physical address. */
static uint64_t place_in(int kcore, uint64_t physical)
{
	Elf64_Phdr segment[SEGMENTS_MAX];
	Elf64_Ehdr head;
	unsigned int i;

	read_whole(kcore, &head, sizeof(head), 0);
	if (head.e_phnum > SEGMENTS_MAX)
		measure_fail("/proc/kcore has %u segments", head.e_phnum);
	read_whole(kcore, segment, head.e_phnum * sizeof(segment[0]), head.e_phoff);
	for (i = 0; i < head.e_phnum; i++)
		if (segment[i].p_type == PT_LOAD && segment[i].p_paddr != UINT64_MAX &&
		    physical - segment[i].p_paddr < segment[i].p_memsz)
			return segment[i].p_offset + (physical - segment[i].p_paddr);
	measure_fail("/proc/kcore does not have the page");
}

/* A file in memory that is this page. */
static int file_of(const uint8_t *page)
{
	int file = memfd_create("page", 0);

	if (file < 0 || write(file, page, PAGE) != PAGE)
		measure_fail("a file of a page cannot be made: %m");
	return file;
}

static void read_by(char **argv, char *source, uint64_t address)
{
	char place[32];
	char *command[] = {
		argv[1], "--source", source, "--address", place, "--interval-test", argv[2],
		"--reads", argv[3], NULL,
	};
	int status = -1;
	pid_t child;

	snprintf(place, sizeof(place), "%#llx", (unsigned long long)address);
	fflush(stdout);
	child = fork();
	if (!child) {
		execv(command[0], command);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) < 0 || status)
		measure_fail("the sampler failed: %.200s", source);
}

int main(int argc, char **argv)
{
	uint8_t *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
	int kcore = open("/proc/kcore", O_RDONLY);
	uint64_t physical;
	char source[256];

	if (argc < 4 || argc > 5)
		measure_fail("usage: own-page SAMPLER BYTES,... READS [HOST,PORT,KEY_FILE]");
	if (page == MAP_FAILED || mlock(page, PAGE) || kcore < 0)
		measure_fail("a page cannot be pinned, or /proc/kcore cannot be opened: %m");
	memset(page, PATTERN, PAGE);
	physical = announce_physical(page);
	snprintf(source, sizeof(source), "ram:/proc/self/fd/%d", file_of(page));
	read_by(argv, source, 0);
	measure_progress(1, 3);
	snprintf(source, sizeof(source), "regions:%#llx:%u:%d:%#llx", (unsigned long long)physical,
		 PAGE, kcore, (unsigned long long)place_in(kcore, physical));
	read_by(argv, source, physical);
	measure_progress(2, 3);
	if (argc == 5) {
		snprintf(source, sizeof(source), "rdma:%s", argv[4]);
		read_by(argv, source, physical);
	}
	if (announce_physical(page) != physical)
		measure_fail("the page has moved");
	printf("{\"check\": \"remote: the page stayed where it was\"}\n{\"complete\": true}\n");
	return 0;
}
