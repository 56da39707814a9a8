/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A machine without a launcher, which `trapless image` makes: nobody reads a channel.
 */
#ifndef TRAPLESS_GUEST_ALONE_H
#define TRAPLESS_GUEST_ALONE_H

#include "guest_config.h"

/* Statuses by which the command says what comes after it; any other one leads to a shell. */
#define ALONE_POWER_OFF 0
#define ALONE_RESTART 64

/* How long a reason for which nothing could be run can be read, seconds. */
#define ALONE_READ_S 120

/* Run the command on the console, and then switch the machine off or restart it. */
__attribute__((noreturn)) void alone_run(const struct guest_config *config);

#endif /* TRAPLESS_GUEST_ALONE_H */
