/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Functions and tables of the kernel that are not exported to modules. They are found once, when
 * the module is loaded, which fails if any of them is missing. This header owns their names in the
 * module, and no policy about when they are called.
 */
#ifndef TLK_COMPAT_SYMBOLS_H
#define TLK_COMPAT_SYMBOLS_H

#include <linux/sched.h>
#include <linux/task_work.h>
#include <asm/syscall.h>

struct tracepoint;

int tlk_symbols_init(void);

/* The kernel's own table of __NR_syscalls handlers. */
const sys_call_ptr_t *tlk_syscall_table(void);

#ifdef CONFIG_SECURITY
/* Where TOMOYO keeps the current thread's domain, a pointer; NULL where TOMOYO is off. */
const void *const *tlk_tomoyo_domain(void);

/* Bytes that the security modules keep in each struct cred. */
size_t tlk_cred_security_bytes(void);
#endif

/* The address of any symbol, or NULL. Only while the module is being loaded. */
void *tlk_symbol(const char *name);

/* A tracepoint of the kernel's own code, or NULL. At any time. */
struct tracepoint *tlk_tracepoint(const char *name);

/* These are the kernel's functions of the same names, on the current task. */
int tlk_secure_computing(void);
void tlk_task_work_run(void);
int tlk_task_work_add(struct callback_head *work);

/* Does the CPU run nothing but its idle thread? The answer may be old when it is given. */
bool tlk_cpu_is_idle(int cpu);

/* Adds work to any task, which does it at its next return to user mode. */
int tlk_task_work_notify(struct task_struct *task, struct callback_head *work);

#endif /* TLK_COMPAT_SYMBOLS_H */
