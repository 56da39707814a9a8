/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Runs one test as a process of its own and reports it as a line of JSON.
 */
#ifndef TL_TEST_RUNNER_H
#define TL_TEST_RUNNER_H

struct runner {
	int kernel_log;		/* /dev/kmsg, at its end; -1 where it cannot be read */
};

/* Returns 0, or -1 after saying what is wrong. */
int runner_init(struct runner *runner);

/* Runs `labtests NAME` and prints its two lines. */
void runner_run(struct runner *runner, const char *name, unsigned int limit_s);

#endif /* TL_TEST_RUNNER_H */
