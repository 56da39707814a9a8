/* SPDX-License-Identifier: GPL-2.0-only */
/* Supervisor mode, as main.c and device.c see it. */
#ifndef TLK_SUPERVISOR_H
#define TLK_SUPERVISOR_H

#include <linux/trapless.h>
#include <asm/syscall.h>

/*
 * Sets the mechanism up if it was asked for and nothing speaks against it; otherwise the module
 * works without. An error is one of setting up only.
 */
int tlk_supervisor_init(const sys_call_ptr_t *table);
void tlk_supervisor_exit(void);

/* Bits 1 << TL_REFUSED_* of the first kind: why no process is switched here and now. */
u64 tlk_supervisor_refusals(void);

/* Whether processes can be switched at all, on this machine and as the module was loaded. */
bool tlk_supervisor_is_offered(void);

/* Checks a request and its caller, and registers it. -errno; request->refusal is filled in. */
int tlk_supervisor_switch(struct tl_switch *request);

#endif /* TLK_SUPERVISOR_H */
