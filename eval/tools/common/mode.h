/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The mode of a process, as workloads ask for it and look at it: the requests to the module, its
 * counts, and the privilege level that the code segment register itself shows. It owns no
 * measurement. Requests go through an open descriptor, so that each is one system call.
 */
#ifndef EVAL_MODE_H
#define EVAL_MODE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <linux/trapless.h>

/* The privilege level that the caller runs at: 3, or 0 in supervisor mode. */
static inline __attribute__((always_inline)) unsigned int mode_level(void)
{
	unsigned int segment;

	__asm__ volatile("mov %%cs, %0" : "=r"(segment) : : "memory");
	return segment & 3;
}

/*
 * A descriptor of the module where it offers supervisor mode; otherwise -1, and `why` says in a
 * sentence what is in the way. Ends the program only on what should not happen.
 */
int mode_open(const char **why);

/* These end the program if the module refuses. A pid of 0 is the caller's own. */
void mode_switch(int fd, pid_t pid, enum tl_mode mode, unsigned int flags);
void mode_counts(int fd, pid_t pid, struct tl_process *counts);
void mode_counts_ended(int fd, struct tl_process *counts);	/* of all that have ended */
unsigned int mode_processes(int fd);	/* that are switched at present */

/* Calls that the module made and that returned in supervisor mode. */
static inline uint64_t mode_calls_stayed(const struct tl_process *counts)
{
	return counts->calls_direct + counts->calls_worked;
}

/* All others of a process that was switched. */
static inline uint64_t mode_calls_left(const struct tl_process *counts)
{
	return counts->calls_left + counts->calls_kernel;
}

static inline uint64_t mode_demotions(const struct tl_process *counts)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < TL_DEMOTIONS; i++)
		sum += counts->demotions[i];
	return sum;
}

#endif /* EVAL_MODE_H */
