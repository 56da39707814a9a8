/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the operations on /dev/trapless share: rings, memory that calls may write, and numbers and
 * arguments that come from a program's bytes. operations.c owns them; fuzzed_steps.c has the
 * operations on programs of calls.
 */
#ifndef TL_FUZZ_OPERATIONS_H
#define TL_FUZZ_OPERATIONS_H

#include "fuzzed_program.h"

#include "ring.h"

#define SCRATCH 65536u
#define SAFE_BYTES 4096u	/* that a call of a supervised program may write */

#define CHOOSE(table, byte) ((table)[(byte) % (sizeof(table) / sizeof(*(table)))])

extern char scratch[SCRATCH + SAFE_BYTES];

struct ring *take_ring(struct script *script);
uint32_t take_number(struct script *script);
uint64_t take_argument(struct script *script);

/* Gives a request a number and arguments. Its state stays. */
void request_fill(struct script *script, struct tl_request *request);

/* fuzzed_steps.c */
void put_steps(struct script *script);
void enter_program(struct script *script);
void put_program(struct script *script);

#endif /* TL_FUZZ_OPERATIONS_H */
