/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counts the entries of one process into the kernel's dispatcher of system calls.
 *
 * A stock kernel has one function through which every 64-bit system call of every thread passes.
 * The module does not: it takes handlers from the table. So a breakpoint register of the processor
 * on that function, read as a perf event of the process, counts the crossings of all its threads
 * and children, and no others. It sets no flag that a thread looks at on its way into the kernel;
 * tracepoints of system calls, strace and audit do, and would turn batches off. A kprobe would do
 * the same on kernels that let it be set there; the newest does not. System calls by int $0x80 go
 * another way and are not counted.
 */
#ifndef EVAL_PROBE_H
#define EVAL_PROBE_H

#include <stdint.h>
#include <sys/types.h>

/* Both end the program with the reason where they cannot do their work. */
int probe_attach(pid_t process);	/* a process that is stopped; a descriptor */
uint64_t probe_read(int probe);		/* after it has been reaped; closes the descriptor */

#endif /* EVAL_PROBE_H */
