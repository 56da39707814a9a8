/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Says who is left when something does not end.
 */
#ifndef TL_FUZZ_HOLDERS_H
#define TL_FUZZ_HOLDERS_H

/* Prints lines that begin with "held". Takes root. */
void holders_print(void);

#endif /* TL_FUZZ_HOLDERS_H */
