/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Switching processes and reading the module's counts of their calls, for modes.c. It starts no
 * process and measures nothing.
 */
#ifndef EVAL_MODES_DEVICE_H
#define EVAL_MODES_DEVICE_H

#include <linux/trapless.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* How calls of switched processes went. */
struct calls {
	uint64_t direct, worked, left, kernel;
	uint64_t demotions[TL_DEMOTIONS];
};

/* Whether the module offers supervisor mode; if not, the reason. */
bool device_offers(const char **reason);

/* 0 is the caller itself. Fails the run when the module refuses. */
void device_switch(pid_t pid, enum tl_mode mode, unsigned int flags);

/* The calls of all ended processes that were switched: a command's are the difference around it. */
struct calls device_calls_of_ended(void);

/* The calls of one living process; zeros if it was never switched. */
struct calls device_calls_of(pid_t pid);

void calls_add(struct calls *sum, const struct calls *more);
struct calls calls_difference(const struct calls *end, const struct calls *begin);

#endif /* EVAL_MODES_DEVICE_H */
