// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finds functions and tables that the kernel does not export. This file owns the look-up and the
 * calls. It owns no policy about when they are made.
 *
 * The look-up begins with a kprobe: registering one on a function by name gives the function's
 * address, also that of kallsyms_lookup_name, which has not been exported since upstream commit
 * 0bd476e6c671 (5.7). Every function found this way is called through a static call. That patches a
 * direct call into the module's text, so it works where indirect-branch tracking has sealed
 * functions that nobody in the kernel calls by pointer, and it costs no retpoline.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cache.h>
#include <linux/errno.h>
#include <linux/init.h>
#include <linux/kallsyms.h>
#include <linux/kernel.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/printk.h>
#include <linux/seccomp.h>
#include <linux/static_call.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#ifdef CONFIG_SECURITY
#include <linux/lsm_hooks.h>
#endif

#include "compat/symbols.h"

static unsigned long no_lookup(const char *name)
{
	return 0;
}

/* Later kernels have dropped the argument; there the register that carries NULL is not read. */
static int no_secure_computing(const struct seccomp_data *data)
{
	return -1;
}

static void no_task_work_run(void)
{
}

static int no_task_work_add(struct task_struct *task, struct callback_head *work,
			    enum task_work_notify_mode notify)
{
	return -ESRCH;
}

static int no_idle_cpu(int cpu)
{
	return 0;
}

TLK_CHECK_STAND_IN(kallsyms_lookup_name, no_lookup);
TLK_CHECK_STAND_IN(task_work_run, no_task_work_run);
TLK_CHECK_STAND_IN(task_work_add, no_task_work_add);
TLK_CHECK_STAND_IN(idle_cpu, no_idle_cpu);

DEFINE_STATIC_CALL(lookup, no_lookup);
DEFINE_STATIC_CALL(secure_computing, no_secure_computing);
DEFINE_STATIC_CALL(task_work_run, no_task_work_run);
DEFINE_STATIC_CALL(task_work_add, no_task_work_add);
DEFINE_STATIC_CALL(idle_cpu, no_idle_cpu);

static const sys_call_ptr_t *syscall_table __ro_after_init;

#ifdef CONFIG_SECURITY
static size_t cred_bytes __ro_after_init;
static bool tomoyo_is_on __ro_after_init;
static size_t tomoyo_at __ro_after_init;
#endif

static __init void *find_function(const char *name)
{
	struct kprobe probe = { .symbol_name = name };
	void *address;
	int error;

	error = register_kprobe(&probe);
	if (error)
		return NULL;
	address = probe.addr;
	unregister_kprobe(&probe);
	return address;
}

/* The look-up also finds symbols of modules. Those of this module are not the kernel's. */
static __init void *find(const char *name)
{
	unsigned long address = static_call(lookup)(name);

	return address && !within_module(address, THIS_MODULE) ? (void *)address : NULL;
}

void *__init tlk_symbol(const char *name)
{
	return find(name);
}

struct search {
	const char *name;
	struct tracepoint *found;
};

static void compare(struct tracepoint *tracepoint, void *data)
{
	struct search *search = data;

	if (!strcmp(tracepoint->name, search->name))
		search->found = tracepoint;
}

static struct tracepoint *find_tracepoint(const char *name)
{
	struct search search = { .name = name };

	for_each_kernel_tracepoint(compare, &search);
	return search.found;
}

int tlk_handler_add(const struct tlk_handler *handler, void *data)
{
	struct tracepoint *tracepoint = find_tracepoint(handler->tracepoint);

	return tracepoint ? tracepoint_probe_register(tracepoint, handler->function, data)
			  : -ENOENT;
}

void tlk_handler_remove(const struct tlk_handler *handler, void *data)
{
	tracepoint_probe_unregister(find_tracepoint(handler->tracepoint), handler->function, data);
}

static __init int missing(const char *what, const char *why)
{
	pr_err("cannot load: this kernel has no %s (%s)\n", what, why);
	return -ENOENT;
}

#ifdef CONFIG_SECURITY

#define SIZES (sizeof(struct lsm_blob_sizes) / sizeof(int))

/* Is the symbol so large? Some kernels cut long names, so a part may have the whole's name. */
static __init bool has_bytes(const void *address, size_t bytes)
{
	char text[KSYM_SYMBOL_LEN];	/* name+offset/length */
	const char *length;
	unsigned long found;

	sprint_symbol(text, (unsigned long)address);
	length = strrchr(text, '/');
	return length && !kstrtoul(length + 1, 0, &found) && found >= bytes;
}

/*
 * Where the kernel keeps one of the sizes. clang may replace the structure by numbered variables,
 * one for each member. They are taken for the members only if their number is the same.
 */
static __init const int *find_size(size_t offset)
{
	const void *whole = find("blob_sizes");
	char name[sizeof("blob_sizes.") + 20];

	if (whole)
		return has_bytes(whole, sizeof(struct lsm_blob_sizes)) ? whole + offset : NULL;
	snprintf(name, sizeof(name), "blob_sizes.%zu", SIZES);
	if (find(name))
		return NULL;
	snprintf(name, sizeof(name), "blob_sizes.%zu", SIZES - 1);
	if (!find(name))
		return NULL;
	snprintf(name, sizeof(name), "blob_sizes.%zu", offset / sizeof(int));
	return find(name);
}

static __init int find_sizes(void)
{
	const int *cred = find_size(offsetof(struct lsm_blob_sizes, lbs_cred));
	const int *tomoyo = find("tomoyo_enabled");
	const struct lsm_blob_sizes *place = find("tomoyo_blob_sizes");

	if (!cred)
		return missing("blob_sizes", "to compare what security modules keep");
	cred_bytes = *cred;
	tomoyo_is_on = tomoyo && *tomoyo;
	if (!tomoyo_is_on)
		return 0;
	if (!place)
		return missing("tomoyo_blob_sizes", "to compare TOMOYO's domains");
	/*
	 * The kernel has stored the offset of TOMOYO's part here. The part begins with the
	 * domain.
	 */
	tomoyo_at = place->lbs_task;
	return 0;
}

#else

static __init int find_sizes(void)
{
	return 0;
}

#endif /* CONFIG_SECURITY */

int __init tlk_symbols_init(void)
{
	int error;
	void *address;

	address = find_function("kallsyms_lookup_name");
	if (!address)
		return missing("kallsyms_lookup_name", "needs CONFIG_KPROBES and CONFIG_KALLSYMS");
	static_call_update(lookup, address);

	syscall_table = find("sys_call_table");
	if (!syscall_table)
		return missing("sys_call_table", "needs CONFIG_KALLSYMS_ALL");

	error = find_sizes();
	if (error)
		return error;

	address = find("__secure_computing");
	if (!address)
		return missing("__secure_computing", "needs CONFIG_SECCOMP");
	static_call_update(secure_computing, address);

	address = find("task_work_run");
	if (!address)
		return missing("task_work_run", "to finish closing files between requests");
	static_call_update(task_work_run, address);

	address = find("task_work_add");
	if (!address)
		return missing("task_work_add", "to clean up when a filter ends a thread");
	static_call_update(task_work_add, address);

	/* Without it no CPU counts as idle. */
	address = find("idle_cpu");
	if (address)
		static_call_update(idle_cpu, address);
	return 0;
}

const sys_call_ptr_t *tlk_syscall_table(void)
{
	return syscall_table;
}

#ifdef CONFIG_SECURITY
const void *const *tlk_tomoyo_domain(void)
{
	return tomoyo_is_on ? current->security + tomoyo_at : NULL;
}

size_t tlk_cred_security_bytes(void)
{
	return cred_bytes;
}
#endif

int tlk_secure_computing(void)
{
	return static_call(secure_computing)(NULL);
}

void tlk_task_work_run(void)
{
	static_call(task_work_run)();
}

int tlk_task_work_add(struct callback_head *work)
{
	return static_call(task_work_add)(current, work, TWA_NONE);
}

int tlk_task_work_notify(struct task_struct *task, struct callback_head *work)
{
	return static_call(task_work_add)(task, work, TWA_RESUME);
}

bool tlk_cpu_is_idle(int cpu)
{
	return static_call(idle_cpu)(cpu);
}
