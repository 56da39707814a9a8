/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * The papers' own names for functions of trapless.h. It defines aliases and nothing else;
 * arguments, errors and concurrency are those of the functions.
 */
#ifndef TRAPLESS_PAPER_H
#define TRAPLESS_PAPER_H

#include <trapless.h>

/* parallel-system-call, section 2: the five operations on a ring that workers serve. */
#define pscregist tl_psc_create
#define pscenter tl_psc_enter
#define pscnotify tl_psc_notify
#define pscwait tl_psc_wait
#define pscexit tl_psc_destroy

/* running-mode-switch, Table 1: the two switches of a process. */
#define switch_supervisor tl_switch_supervisor
#define switch_user tl_switch_user

#endif /* TRAPLESS_PAPER_H */
