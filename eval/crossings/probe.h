/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * probe.h - counts entries into the kernel's dispatcher of system calls, thread by thread.
 *
 * A stock kernel has one function through which every 64-bit system call of every thread passes.
 * The module does not: it takes handlers from the table. So a kprobe event on that function, with
 * a histogram over thread ids, counts crossings. It sets no flag that a thread looks at on its way
 * into the kernel; tracepoints of system calls, strace and audit do, and would turn batches off.
 * It owns the event while it exists. What is counted, and when, is the caller's business.
 */
#ifndef EVAL_PROBE_H
#define EVAL_PROBE_H

#include <stdint.h>
#include <sys/types.h>

struct probe_count {
	uint64_t own;		/* crossings of the thread asked for */
	uint64_t others;	/* of everybody else but the caller */
};

/* All of these end the program with the reason where they cannot do their work. */
void probe_create(void);
void probe_start(void);
struct probe_count probe_stop(pid_t thread);
void probe_remove(void);

#endif /* EVAL_PROBE_H */
