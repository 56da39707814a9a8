/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declares a run: sampling by a plan, from the first deadline to the end.
 */
#ifndef SAMPLER_RUN_H
#define SAMPLER_RUN_H

#include <signal.h>

#include "output.h"
#include "plan.h"
#include "row.h"
#include "source.h"

/* A signal handler sets it: sampling then ends with the current slot. */
extern volatile sig_atomic_t run_stop;

/* The first signal ends sampling. A second one ends the process, if its output is stuck. */
void run_catch_signals(void);

/* Binds this thread to a processor; 0 or -errno. */
int run_pin(int cpu);

/* Bytes of a row under a plan. */
uint32_t run_row_bytes(const struct plan *plan);

/*
 * Samples until something ends it; `end` says what, and the counts. 0, or -errno with `error`
 * (SOURCE_ERROR_BYTES) filled when it could not begin.
 */
int run_plan(const struct plan *plan, struct source *source, struct output *output,
	     struct stream_end *end, char *error);

#endif
