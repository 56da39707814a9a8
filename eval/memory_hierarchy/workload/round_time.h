/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The moment at which a region of the memory model begins. Each time it has the same distance from
 * the kernel's timer, and the kernel has done the work that it had put off. Where the time-stamp
 * counter counts instructions (the lab's --icount) it is exact to the instruction, whatever became
 * of the clock while the machine slept.
 */
#ifndef TRAPLESS_ROUND_TIME_H
#define TRAPLESS_ROUND_TIME_H

#include <stdbool.h>
#include <stdint.h>

/* Returns at the moment; sleeps before. Ends the program if there is no such moment. */
void await_round_time(void);

/* From now on each wait begins and wakes late, by up to 4,095 instructions; 0: no more. */
void round_time_disturb(uint64_t seed);

/* round_spin.S */
bool round_spin(uint64_t instant);

#endif
