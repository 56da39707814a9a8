// SPDX-License-Identifier: GPL-2.0-only
/*
 * A kernel module that makes an array of system calls as c-blake/batch does, written anew after
 * what that project publishes of its design. It copies all calls into fresh memory, makes each with
 * a register frame of its own, and copies all results back. It is entered by lseek(2) on
 * /dev/array, as Trapless is, because a stock kernel never dispatches the number that the project's
 * own module takes. Like that project's module, it asks neither seccomp nor tracers and serves no
 * signal between two calls. For experiment programs alone.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/err.h>
#include <linux/fs.h>
#include <linux/kprobes.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/unistd.h>
#include <asm/syscall.h>

#include "array.h"

static const sys_call_ptr_t *table;

/* The calls and results of one entry, in the kernel. */
struct copy {
	struct array user;
	long *results;
	struct array_call *calls;
};

static bool is_refused(short nr)
{
	return nr == __NR_execve || nr == __NR_execveat || nr == __NR_clone || nr == __NR_vfork ||
	       nr == __NR_fork || nr == __NR_clone3 || nr == __NR_rt_sigreturn;
}

static long make_call(const struct array_call *call)
{
	struct pt_regs regs = {};

	switch (call->arguments) {
	case 6:
		regs.r9 = call->args[5];
		fallthrough;
	case 5:
		regs.r8 = call->args[4];
		fallthrough;
	case 4:
		regs.r10 = call->args[3];
		fallthrough;
	case 3:
		regs.dx = call->args[2];
		fallthrough;
	case 2:
		regs.si = call->args[1];
		fallthrough;
	case 1:
		regs.di = call->args[0];
	}
	return table[call->nr](&regs);
}

/* The place of a user address in one of the copies, or NULL. */
static long *place_in(unsigned long address, const void *user, void *kernel, unsigned long bytes)
{
	unsigned long offset = address - (unsigned long)user;

	return offset <= bytes - sizeof(long) ? kernel + offset : NULL;
}

static int copy_word(const struct copy *copy, const struct array_call *call)
{
	unsigned long results = copy->user.count * sizeof(long);
	unsigned long calls = copy->user.count * sizeof(struct array_call);
	long *from = place_in(call->args[1], copy->user.results, copy->results, results);
	long *to = place_in(call->args[0], copy->user.calls, copy->calls, calls);
	long word;

	if (from)
		word = *from;
	else if (get_user(word, (long __user *)call->args[1]))
		return -EFAULT;
	if (to)
		*to = word;
	else if (put_user(word, (long __user *)call->args[0]))
		return -EFAULT;
	return 0;
}

/* Makes the calls. Returns how many places of the array it went through. */
static unsigned long run(const struct copy *copy)
{
	unsigned long at = 0;
	long skip = 0;

	for (; at < copy->user.count && skip >= 0; at += 1 + skip) {
		const struct array_call *call = &copy->calls[at];
		long result;

		skip = 0;
		if (call->nr == ARRAY_COPY) {
			if (copy_word(copy, call))
				return at;
			continue;
		}
		if (call->nr < 0 || call->nr >= NR_syscalls || call->arguments > 6 ||
		    is_refused(call->nr))
			result = -ENOSYS;
		else
			result = make_call(call);
		copy->results[at] = result;
		skip = IS_ERR_VALUE(result) ? call->on_error :
		       result > 0 ? call->on_positive : call->on_zero;
	}
	return min(at, copy->user.count);
}

static loff_t array_llseek(struct file *file, loff_t argument, int whence)
{
	unsigned long bytes;
	struct copy copy;
	long done;

	if (copy_from_user(&copy.user, (void __user *)argument, sizeof(copy.user)))
		return -EFAULT;
	if (!copy.user.count || copy.user.count > ARRAY_CALLS_MAX)
		return -EINVAL;
	bytes = copy.user.count * sizeof(struct array_call);
	copy.results = kzalloc(copy.user.count * sizeof(long) + bytes, GFP_KERNEL);
	if (!copy.results)
		return -ENOMEM;
	copy.calls = (void *)(copy.results + copy.user.count);
	done = -EFAULT;
	if (!copy_from_user(copy.calls, (void __user *)copy.user.calls, bytes)) {
		done = run(&copy);
		if (copy_to_user((void __user *)copy.user.results, copy.results,
				 done * sizeof(long)))
			done = -EFAULT;
	}
	kfree(copy.results);
	return done;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.llseek = array_llseek,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = ARRAY_DEVICE,
	.fops = &operations,
	.mode = 0600,
};

/* A kprobe gives the address of the function that gives all others. */
static int __init find_table(void)
{
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	unsigned long (*lookup)(const char *name);
	int error = register_kprobe(&probe);

	if (error)
		return error;
	lookup = (void *)probe.addr;
	unregister_kprobe(&probe);
	table = (void *)lookup("sys_call_table");
	return table ? 0 : -ENOENT;
}

static int __init array_init(void)
{
	int error = find_table();

	if (error) {
		pr_err("the kernel's table of system calls was not found\n");
		return error;
	}
	return misc_register(&device);
}

static void __exit array_exit(void)
{
	misc_deregister(&device);
}

module_init(array_init);
module_exit(array_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("an array of system calls in one crossing, for experiment programs");
