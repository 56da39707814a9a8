/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The places where a debugger stops. They are a file of their own, so that a call of them is a
 * call. The debugger (eval/tools/steps/steps.py) stops at their first instructions; `magic` tells
 * this program from others that have code at the same address, `name` is what comes next.
 */
#ifndef STEPS_MARKS_H
#define STEPS_MARKS_H

#include <stdint.h>

#define STEPS_MAGIC 0x737465707321u

void steps_begin(const char *name, uint64_t magic);
void steps_end(const char *name, uint64_t magic);

#endif /* STEPS_MARKS_H */
