// SPDX-License-Identifier: GPL-2.0-only
/*
 * A tracer comes and goes while workers serve in the module: every request is made once all the
 * same, some by the module before, the rest by user-space workers, and the library says so.
 */
#include "check.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <trapless.h>

#define ENTRIES 32
#define ROUNDS 300
#define ROUND_TRACED 100	/* the tracer comes here ... */
#define ROUND_FREE 200		/* ... and goes */

static int to_tracer[2], from_tracer[2];

static void tracer_acts(void)
{
	char byte;

	MUST(write(to_tracer[1], "t", 1));
	MUST(read(from_tracer[0], &byte, 1));
}

static void program(void)
{
	int fd = MUST(memfd_create("written", 0));
	struct tl_stats stats = { .size = sizeof(stats) };
	int slow, pipes[2];
	struct tl_psc *psc;
	int64_t result;
	char byte = 0;

	MUST(pipe(pipes));
	CHECK_EQ(tl_psc_create(&psc, ENTRIES, 0, TL_MODULE), 0);
	CHECK_EQ(tl_psc_start(psc, 3), 0);
	/* Interrupted inside the module, given back, and made again outside. */
	slow = TL_PSC_ADD(psc, SYS_read, pipes[0], &byte, 1);
	for (int round = 0; round < ROUNDS; round++) {
		unsigned int slots[ENTRIES];

		for (int i = 0; i < ENTRIES / 2; i++)
			slots[i] = (unsigned int)TL_PSC_ADD(psc, SYS_pwrite64, fd, "x", 1,
							    round * ENTRIES / 2 + i);
		if (round == ROUND_TRACED) {
			CHECK_EQ(tl_psc_backend(psc), TL_BACKEND_MODULE);
			tracer_acts();
		}
		if (round == ROUND_FREE)
			tracer_acts();
		CHECK_EQ(tl_psc_wait(psc, 1), 1);
		for (int i = 0; i < ENTRIES / 2; i++) {
			CHECK_EQ(tl_psc_result(psc, slots[i], &result), 1);
			CHECK_EQ(result, 1);
		}
	}
	CHECK_EQ(tl_psc_backend(psc), TL_BACKEND_PLAIN);
	MUST(write(pipes[1], "s", 1));
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	CHECK_EQ(tl_psc_result(psc, (unsigned int)slow, &result), 1);
	CHECK_EQ(result, 1);
	CHECK_EQ(byte, 's');
	CHECK_EQ(tl_psc_get_stats(psc, &stats), 0);
	CHECK_EQ(stats.executed, ROUNDS * ENTRIES / 2 + 1);
	CHECK_EQ(lseek(fd, 0, SEEK_END), ROUNDS * ENTRIES / 2);
	tl_psc_destroy(psc);
}

/* Attaches to every thread of the program, lets each run on, and lets go when it is told. */
static void trace(pid_t pid)
{
	pid_t tids[64];
	char path[64];
	struct dirent *entry;
	int n = 0, status;
	DIR *threads;
	char byte;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	threads = opendir(path);
	CHECK(threads);
	while ((entry = readdir(threads)))
		if (entry->d_name[0] != '.' && n < 64)
			tids[n++] = atoi(entry->d_name);
	closedir(threads);
	for (int i = 0; i < n; i++) {
		MUST(ptrace(PTRACE_SEIZE, tids[i], NULL, NULL));
		MUST(ptrace(PTRACE_INTERRUPT, tids[i], NULL, NULL));
		CHECK_EQ(waitpid(tids[i], &status, __WALL), tids[i]);
		MUST(ptrace(PTRACE_CONT, tids[i], NULL, NULL));
	}
	MUST(write(from_tracer[1], "g", 1));
	MUST(read(to_tracer[0], &byte, 1));
	for (int i = 0; i < n; i++) {
		MUST(ptrace(PTRACE_INTERRUPT, tids[i], NULL, NULL));
		CHECK_EQ(waitpid(tids[i], &status, __WALL), tids[i]);
		MUST(ptrace(PTRACE_DETACH, tids[i], NULL, NULL));
	}
	MUST(write(from_tracer[1], "g", 1));
}

int main(void)
{
	char byte;
	pid_t pid;

	MUST(pipe(to_tracer));
	MUST(pipe(from_tracer));
	pid = child_start(program);
	MUST(read(to_tracer[0], &byte, 1));
	trace(pid);
	CHECK_EXITED(child_wait(pid), 0);
	return 0;
}
