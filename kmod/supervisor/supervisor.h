/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Supervisor mode, as main.c and device.c see it. This header owns set-up and requests; process.h
 * owns the list of processes.
 */
#ifndef TLK_SUPERVISOR_H
#define TLK_SUPERVISOR_H

#include <linux/trapless.h>

#include "compat/frame.h"

/*
 * Sets supervisor mode up if it was asked for and no check refuses it; otherwise the module works
 * without it. Only the set-up itself can fail with an error.
 */
int tlk_supervisor_init(const sys_call_ptr_t *table);
void tlk_supervisor_exit(void);

/* Returns bits 1 << TL_REFUSED_* of the first kind: why no process is switched here and now. */
u64 tlk_supervisor_refusals(void);

/* Can processes be switched at all, on this machine and as the module was loaded? */
bool tlk_supervisor_is_offered(void);

/* Checks a request and its caller, and registers it. Returns -errno; fills in request->refusal. */
int tlk_supervisor_switch(struct tl_switch *request);

#endif /* TLK_SUPERVISOR_H */
