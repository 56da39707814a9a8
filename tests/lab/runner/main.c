// SPDX-License-Identifier: GPL-2.0-only
/*
 * The one program that holds all tests of the lab and runs them in the guest. Each test is the
 * main() of one file of LAB_FOLDERS, renamed test_NAME when it is compiled.
 *
 *   labtests NAME                   run one test in this process (also as argv[0])
 *   labtests --list                 the names, one a line
 *   labtests --each NAME=SECONDS... run each as a process of its own under its time limit
 *
 * --each prints two JSON lines a test on standard output: {"begin": NAME} and, when it has ended,
 * {"test", "end", "code", "ms", "output", "kernel", "in_use"}. It judges nothing: what is a
 * failure and what in the kernel's log is a splat, tests/lab/runner/verdict.py decides.
 *
 * The tests attack the kernel that they run on, so they run in a lab's guest or not at all.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/vfs.h>

#include "runner.h"

#define TEST(name) int test_##name(void);
#include "tests.inc"
#undef TEST

static const struct test {
	const char *name;
	int (*main)(void);
} tests[] = {
#define TEST(name) { #name, test_##name },
#include "tests.inc"
#undef TEST
};

#define TESTS_COUNT (sizeof(tests) / sizeof(*tests))

static const struct test *find(const char *name)
{
	for (size_t i = 0; i < TESTS_COUNT; i++)
		if (!strcmp(tests[i].name, name))
			return &tests[i];
	return NULL;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* With --host-root a guest has the host's files; no other kernel is started with these words. */
static bool started_by_lab(void)
{
	char words[4096] = "";
	FILE *file = fopen("/proc/cmdline", "r");

	if (!file)
		return false;
	if (!fgets(words, sizeof(words), file))
		words[0] = '\0';
	fclose(file);
	return strstr(words, "rdinit=/init oops=panic panic=-1");
}

/* A guest of the lab lives in its initramfs; a machine that somebody needs has a disk. */
static bool in_guest(void)
{
	struct statfs root;

	if (statfs("/", &root) == 0 && (root.f_type == RAMFS_MAGIC || root.f_type == TMPFS_MAGIC))
		return true;
	return started_by_lab();
}

static int refuse_host(void)
{
	fprintf(stderr, "labtests: this is no guest of the lab; run it by: trapless lab -- %s\n",
		"build/tests/lab/labtests NAME");
	return 2;
}

static int run_each(char **specs)
{
	struct runner runner;

	if (runner_init(&runner) < 0)
		return 1;
	for (; *specs; specs++) {
		char *equals = strchr(*specs, '=');
		long seconds = equals ? atol(equals + 1) : 0;

		if (!equals || seconds <= 0) {
			fprintf(stderr, "labtests: '%s': expected NAME=SECONDS\n", *specs);
			return 2;
		}
		*equals = '\0';
		if (!find(*specs)) {
			fprintf(stderr, "labtests: no test named '%s'; see --list\n", *specs);
			return 2;
		}
		runner_run(&runner, *specs, (unsigned int)seconds);
	}
	return 0;
}

int main(int argc, char **argv)
{
	const struct test *test = find(base_name(argv[0]));

	if (!test && argc == 2 && argv[1][0] != '-') {
		test = find(argv[1]);
		if (!test) {
			fprintf(stderr, "labtests: no test named '%s'; see --list\n", argv[1]);
			return 2;
		}
		program_invocation_short_name = argv[1];
	}
	if (test) {
		if (!in_guest())
			return refuse_host();
		prctl(PR_SET_NAME, test->name);
		return test->main();
	}
	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (size_t i = 0; i < TESTS_COUNT; i++)
			puts(tests[i].name);
		return 0;
	}
	if (argc > 2 && !strcmp(argv[1], "--each"))
		return in_guest() ? run_each(argv + 2) : refuse_host();
	fprintf(stderr, "usage: labtests NAME | --list | --each NAME=SECONDS...\n");
	return 2;
}
