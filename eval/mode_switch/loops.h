/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The measured loops: so many calls of one kind, each with its result compared and with the
 * privilege level looked at before and after it. It owns the calls and their files, and not who
 * runs a loop in which mode.
 *
 * A call is made in one of two forms: `bare`, the trap's instruction in a loop of assembly that is
 * the same for all calls; and `library`, the function of the system-call library, whose linking
 * (static or dynamic) is that of the program. Each form has an empty loop, which makes no call and
 * is the same otherwise: the difference is the cost of a call.
 */
#ifndef MODE_SWITCH_LOOPS_H
#define MODE_SWITCH_LOOPS_H

#include <stdbool.h>
#include <stdint.h>

enum call { EMPTY, NOSYS, GETPID, GETPPID, SBRK, READ, WRITE, READ1, WRITE1, CALLS };
enum form { BARE, LIBRARY, FORMS };

/* One run of a loop: what to do, and what came of it. */
struct loop {
	enum call call;
	enum form form;
	unsigned int count;	/* calls to make, an even number; 1 to call_count() */
	uint64_t bad;		/* other than 0: a result was wrong; which bits */
	uint64_t begun_user;	/* calls begun at privilege level 3 */
	uint64_t ended_user;	/* calls that returned at privilege level 3 */
};

const char *call_name(enum call call);
unsigned int call_count(enum call call);	/* calls that fit into one run */

/* False: the library has no function for this call. */
bool loop_exists(enum call call, enum form form);

/* The files and memory that calls work on; ends the program where they cannot be made. */
void loop_prepare(const char *directory);

/* Around a run, outside what is measured: positions of files, and proof of what was done. */
void loop_begin(struct loop *loop);
void loop_run(void *loop);
void loop_check(const struct loop *loop, const char *mechanism);

#endif /* MODE_SWITCH_LOOPS_H */
