/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Functions and tables of the kernel that are not exported to modules. They are found once, when
 * the module is loaded, which fails if any of them is missing. This header owns their names in the
 * module, and no policy about when they are called.
 */
#ifndef TLK_COMPAT_SYMBOLS_H
#define TLK_COMPAT_SYMBOLS_H

#include <linux/build_bug.h>
#include <linux/sched.h>
#include <linux/task_work.h>

#include "compat/frame.h"

int tlk_symbols_init(void);

/* The kernel's own table of __NR_syscalls handlers. */
const sys_call_ptr_t *tlk_syscall_table(void);

#ifdef CONFIG_SECURITY
/* Where TOMOYO keeps the current thread's domain, a pointer; NULL where TOMOYO is off. */
const void *const *tlk_tomoyo_domain(void);

/* Bytes that the security modules keep in each struct cred. */
size_t tlk_cred_security_bytes(void);
#endif

/*
 * A function that is found by name is called with the type of its stand-in here. The module does
 * not compile where the kernel's header gives the function another type.
 */
#define TLK_CHECK_STAND_IN(function, stand_in) static_assert(__same_type(function, stand_in))

/* The address of any symbol, or NULL. Only while the module is being loaded. */
void *tlk_symbol(const char *name);

/*
 * A handler of a tracepoint. Only TLK_HANDLER() makes one, and it checks the type; tracepoints.h
 * says why. A function that was not checked does not convert to this pointer.
 */
struct tlk_checked_function;
struct tlk_handler {
	const char *tracepoint;
	struct tlk_checked_function *function;
};

/*
 * Gives a tracepoint of the kernel's own code a handler, which gets `data`; takes it away again.
 * Returns -ENOENT where the kernel lacks the tracepoint. May be called at any time. The handler may
 * run until tracepoint_synchronize_unregister().
 */
int tlk_handler_add(const struct tlk_handler *handler, void *data);
void tlk_handler_remove(const struct tlk_handler *handler, void *data);

/* These are the kernel's functions of the same names, on the current task. */
int tlk_secure_computing(void);
void tlk_task_work_run(void);
int tlk_task_work_add(struct callback_head *work);

/* Does the CPU run nothing but its idle thread? The answer may be old when it is given. */
bool tlk_cpu_is_idle(int cpu);

/* Adds work to any task, which does it at its next return to user mode. */
int tlk_task_work_notify(struct task_struct *task, struct callback_head *work);

#endif /* TLK_COMPAT_SYMBOLS_H */
