// SPDX-License-Identifier: GPL-2.0-only
/*
 * Follows processes through fork, exec and exit, by the kernel's tracepoints. This file owns the
 * tracepoints. process.c decides what becomes of a thread at each.
 */
#include <linux/binfmts.h>
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/sched.h>
#include <linux/tracepoint.h>
#include <linux/trapless.h>

#include "compat/symbols.h"
#include "compat/task.h"
#include "compat/tracepoints.h"
#include "supervisor/hooks.h"
#include "supervisor/process.h"

static void on_fork(void *data, struct task_struct *parent, struct task_struct *child)
{
	tlk_process_forked(child);
}

/*
 * A program with more rights than its caller leaves supervisor mode whatever was asked for, and so
 * does a 32-bit one. So does a program of another user than root, unless TL_SWITCH_ANY_USER was
 * asked for: the process may have changed its credentials after the switch, as login programs do.
 */
static void on_exec(void *data, struct task_struct *task, pid_t old_pid, struct linux_binprm *bprm)
{
	const u32 flags = TL_SWITCH_EXEC | (tlk_is_roots(task) ? 0 : TL_SWITCH_ANY_USER);

	tlk_process_executed(bprm->secureexec ? TLK_FLAGS_NEVER : flags);
}

static void on_exit(void *data, struct task_struct *task TLK_EXIT_ARGUMENTS)
{
	tlk_process_exited();
}

static const struct tlk_handler hooks[] = {
	TLK_HANDLER(sched_process_fork, on_fork),
	TLK_HANDLER(sched_process_exec, on_exec),
	TLK_HANDLER(sched_process_exit, on_exit),
};

static void unregister(const struct tlk_handler *end)
{
	const struct tlk_handler *hook;

	for (hook = end - 1; hook >= hooks; hook--)
		tlk_handler_remove(hook, NULL);
	tracepoint_synchronize_unregister();
}

int __init tlk_supervisor_hooks_init(void)
{
	const struct tlk_handler *hook;
	int error;

	for (hook = hooks; hook < hooks + ARRAY_SIZE(hooks); hook++) {
		error = tlk_handler_add(hook, NULL);
		if (error) {
			unregister(hook);
			return error;
		}
	}
	return 0;
}

void tlk_supervisor_hooks_exit(void)
{
	unregister(hooks + ARRAY_SIZE(hooks));
}
