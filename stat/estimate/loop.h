/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The loop in each of its builds: how this kernel, or another, protects indirect calls and returns.
 * The names are those of LOOPS in Makefile.inc and of trapless/estimate/estimated_machine.py.
 */
#ifndef ESTIMATE_LOOP_H
#define ESTIMATE_LOOP_H

#include <linux/trapless.h>

/*
 * Indirect calls: direct, or by retpolines. Returns: plain; through a thunk that is one jump away
 * (retbleed, indirect target selection); or through one that is called (Safe RET). In the builds
 * hot_* the module calls the handlers of hot rows directly, as it does on kernels with retpolines.
 */
#define ESTIMATE_LOOPS(X) \
	X(direct_plain) X(direct_thunk) X(direct_safe) \
	X(retpoline_plain) X(retpoline_thunk) X(retpoline_safe) \
	X(hot_direct_plain) X(hot_retpoline_plain) X(hot_retpoline_thunk) X(hot_retpoline_safe)

/* LOOP(x) is estimate_x_NAME: objects of all builds are in one program. */
#define LOOP_PASTE(what, name) estimate_##what##_##name
#define LOOP_NAME(what, name) LOOP_PASTE(what, name)
#define LOOP(what) LOOP_NAME(what, LOOP_BUILD)

/* Executes n requests of the loop's ring, from `first` on. */
typedef long loop_run(const struct tl_request *first, unsigned long n);

#define ESTIMATE_DECLARE(name) \
	void estimate_init_##name(struct tl_request *requests, unsigned int entries, char *stack); \
	loop_run estimate_run_##name;
ESTIMATE_LOOPS(ESTIMATE_DECLARE)

/* A kernel stack for a loop, bytes. */
#define ESTIMATE_STACK_BYTES 16384

#endif /* ESTIMATE_LOOP_H */
