/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Declares the compound call TL_NR_SCANDIR: a directory's names with their attributes. This header
 * owns nothing else; dispatch.h says who may make it.
 */
#ifndef TLK_SCANDIR_H
#define TLK_SCANDIR_H

#include <linux/ptrace.h>

/* Offers the call where this kernel has what it needs; elsewhere it stays unknown. */
void tlk_scandir_init(void);

#endif /* TLK_SCANDIR_H */
