// SPDX-License-Identifier: GPL-2.0-only
/*
 * A kernel module that reads the counters of a trapless.ko which was built with TLK_COVERAGE=y,
 * over any number of its lives. Insert it before trapless.ko. A read of /dev/trapless_counters
 * gives the counters of all functions as 64-bit numbers, one function after the other in the order
 * of the symbols __gcov0.NAME in trapless.ko. It knows neither functions nor lines:
 * tests/coverage/coverage_notes.py does, from the compiler's notes.
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/string.h>

#define TARGET "trapless"
#define PREFIX "__gcov0."
#define FUNCTIONS_MAX 2048
#define COUNTERS_MAX 65536

/* All of this is under `lock`. */
static DEFINE_MUTEX(lock);
static struct {
	u64 *at;		/* in the module's memory */
	unsigned int count;
} live[FUNCTIONS_MAX];
static unsigned int functions;	/* in live[]; 0 while the module is not loaded */
static unsigned int counters;	/* of the module as it was loaded last */
static u64 gone[COUNTERS_MAX];	/* sums over its lives that have ended */
static u64 sums[COUNTERS_MAX];	/* for one read */

/* The table of symbols is whole while the module is coming; later it may lack some. */
static void counters_find(struct module *module)
{
	struct mod_kallsyms *table = rcu_dereference_raw(module->kallsyms);
	unsigned int i;

	functions = counters = 0;
	for (i = 0; i < table->num_symtab; i++) {
		const Elf_Sym *symbol = &table->symtab[i];
		unsigned int count = symbol->st_size / sizeof(u64);

		if (strncmp(table->strtab + symbol->st_name, PREFIX, strlen(PREFIX)))
			continue;
		if (functions == FUNCTIONS_MAX || counters + count > COUNTERS_MAX) {
			pr_err("trapless_counters: too many functions or counters\n");
			functions = counters = 0;
			return;
		}
		live[functions].at = (u64 *)symbol->st_value;
		live[functions++].count = count;
		counters += count;
	}
	if (!functions)
		pr_err("trapless_counters: this trapless.ko was built without TLK_COVERAGE=y\n");
}

static void counters_add(u64 *to)
{
	unsigned int i, j;

	for (i = 0; i < functions; i++)
		for (j = 0; j < live[i].count; j++)
			*to++ += READ_ONCE(live[i].at[j]);
}

static int module_changes(struct notifier_block *block, unsigned long state, void *data)
{
	struct module *module = data;

	if (strcmp(module->name, TARGET))
		return NOTIFY_DONE;
	mutex_lock(&lock);
	if (state == MODULE_STATE_COMING) {
		counters_find(module);
	} else if (state == MODULE_STATE_GOING) {
		/* Its exit function has run, and its memory is still there. */
		counters_add(gone);
		functions = 0;
	}
	mutex_unlock(&lock);
	return NOTIFY_DONE;
}

static ssize_t device_read(struct file *file, char __user *to, size_t size, loff_t *position)
{
	ssize_t got;

	mutex_lock(&lock);
	memcpy(sums, gone, counters * sizeof(*sums));
	counters_add(sums);
	got = simple_read_from_buffer(to, size, position, sums, counters * sizeof(*sums));
	mutex_unlock(&lock);
	return got;
}

static struct notifier_block block = { .notifier_call = module_changes };

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.read = device_read,
	.llseek = default_llseek,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = KBUILD_MODNAME,
	.fops = &operations,
	.mode = 0600,
};

static int __init trapless_counters_init(void)
{
	int error = register_module_notifier(&block);

	if (error)
		return error;
	error = misc_register(&device);
	if (error)
		unregister_module_notifier(&block);
	return error;
}

static void __exit trapless_counters_exit(void)
{
	misc_deregister(&device);
	unregister_module_notifier(&block);
}

module_init(trapless_counters_init);
module_exit(trapless_counters_exit);
MODULE_DESCRIPTION("Reads the counters of an instrumented trapless.ko, for tests");
MODULE_LICENSE("GPL");
