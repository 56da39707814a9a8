/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tells the launcher why the guest cannot run the command, and ends the run.
 */
#ifndef TRAPLESS_GUEST_FAIL_H
#define TRAPLESS_GUEST_FAIL_H

__attribute__((noreturn, format(printf, 1, 2))) void guest_fail(const char *format, ...);
/* Where no launcher reads it, leave the reason on the screen for so long before the end. */
void guest_fail_stays(unsigned int seconds);

#endif /* TRAPLESS_GUEST_FAIL_H */
