/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How many instructions a counted guest has executed for anything but its idle loop. The time-stamp
 * counter would also count what an idle processor skips to reach its next timer.
 */
#ifndef EVAL_PEEK_OVERHEAD_WORKED_H
#define EVAL_PEEK_OVERHEAD_WORKED_H

#include <stdint.h>

/* Proves that the results are instructions; ends the program if they are not. */
void worked_check(void);

/* By all processes, in user space and in the kernel, interrupts included. */
uint64_t worked_instructions(void);

#endif /* EVAL_PEEK_OVERHEAD_WORKED_H */
