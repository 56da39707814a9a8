/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The command in supervisor mode: asking for it, and counting what came of it.
 */
#ifndef TRAPLESS_GUEST_SUPERVISOR_H
#define TRAPLESS_GUEST_SUPERVISOR_H

#include <stdint.h>
#include <sys/types.h>

/* What the module answered. */
struct supervisor_answer {
	int32_t error;		/* 0 or errno */
	uint32_t refusal;	/* enum tl_refusal, with some errors */
};

/* Calls of all processes that were ever switched, by the path they took. */
struct supervisor_calls {
	uint64_t direct, worked, left, kernel;
};

/* Ask that a process (0: the caller) change to supervisor mode, with TL_SWITCH_* flags. */
struct supervisor_answer supervisor_switch(pid_t pid, unsigned int flags);

/* Returns 0 or -errno. */
int supervisor_count(struct supervisor_calls *calls);

#endif /* TRAPLESS_GUEST_SUPERVISOR_H */
