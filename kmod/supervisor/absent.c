// SPDX-License-Identifier: GPL-2.0-only
/*
 * Answers for supervisor mode where the kernel was built without what it takes (preemption
 * notifiers, tracepoints) or for real time. This file owns the answer that it is not there, and
 * nothing else.
 */
#include <linux/bits.h>
#include <linux/errno.h>
#include <linux/init.h>
#include <linux/moduleparam.h>

#include "supervisor/list.h"
#include "supervisor/process.h"
#include "supervisor/supervisor.h"

static bool supervisor;
module_param(supervisor, bool, 0444);
MODULE_PARM_DESC(supervisor, "offer supervisor mode (this kernel was built without what it takes)");

int __init tlk_supervisor_init(const sys_call_ptr_t *table)
{
	return 0;
}

void tlk_supervisor_exit(void)
{
}

u64 tlk_supervisor_refusals(void)
{
	return BIT_ULL(TL_REFUSED_CONFIG) | (supervisor ? 0 : BIT_ULL(TL_REFUSED_PARAMETER));
}

bool tlk_supervisor_is_offered(void)
{
	return false;
}

int tlk_supervisor_switch(struct tl_switch *request)
{
	request->refusal = TL_REFUSED_CONFIG;
	return -EOPNOTSUPP;
}

u32 tlk_processes_list(struct tl_process *entries, u32 count)
{
	return 0;
}

u32 tlk_processes_count(void)
{
	return 0;
}
