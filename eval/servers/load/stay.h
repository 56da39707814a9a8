/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A load whose connections stay open from one run to the next: stay.c.
 */
#ifndef EVAL_SERVERS_STAY_H
#define EVAL_SERVERS_STAY_H

#include <stdint.h>

/*
 * Listens on a Unix socket and calls `run` for each connection to it, one after the other; `run`
 * returns the number of replies, all right, or ends the program. Does not return.
 */
void stay(const char *path, uint64_t (*run)(void)) __attribute__((noreturn));
/* Lets a process that listens there run its load once. Ends the program where that fails. */
uint64_t stay_ask(const char *path);

#endif
