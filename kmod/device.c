// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/trapless. This file owns the file operations: which entry or ioctl leads where.
 * enter.h owns the check that all entries share. It owns no ring and executes nothing.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/compat.h>
#include <linux/errno.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "device.h"
#include "limits.h"
#include "ring/batch.h"
#include "ring/enter.h"
#include "ring/dispatch.h"
#include "ring/program.h"
#include "ring/queue.h"
#include "ring/request.h"
#include "ring/ring.h"
#include "ring/setup.h"
#include "ring/worker.h"
#include "supervisor/list.h"
#include "supervisor/process.h"
#include "supervisor/supervisor.h"

/* The entries that are off the fast path. */
static noinline loff_t enter_other(struct tlk_ring *ring, struct file *file, int whence)
{
	const struct pt_regs *regs = current_pt_regs();
	unsigned long kind = regs->TLK_ARG5, argument = tlk_enter_argument(regs);

	if (whence != TL_ENTER_OTHER || !tlk_ring_is_at(ring, regs->TLK_ARG3))
		return -EINVAL;
	if (kind == TL_ENTER_PROGRAM && !ring->queue)
		return tlk_program_enter(ring, file, argument);
	if (kind == TL_ENTER_NOTIFY && ring->queue)
		return tlk_queue_notify(ring, argument);
	if (kind == TL_ENTER_WAIT && ring->queue)
		return tlk_queue_wait(ring, file, argument);
	return -EINVAL;
}

/*
 * Batches, notifies and waits enter here: the binary interface says why it is lseek(). The offset
 * only protects other files. An lseek() that is no entry names no ring, and is refused.
 */
static loff_t device_llseek(struct file *file, loff_t offset, int whence)
{
	struct tlk_ring *ring = tlk_ring_of(file);
	int error = tlk_enter_check(ring);

	if (unlikely(error))
		return error;
	if (likely(whence == TL_ENTER_BATCH && !ring->queue))
		return tlk_batch_enter(ring, file);
	return enter_other(ring, file, whence);
}

/*
 * Copies a structure from the caller. Its first field is its size. It may be longer than the
 * structure that is known here, if the rest is zero.
 */
static int structure_take(void *structure, u32 known, const void __user *user)
{
	u32 size;

	if (get_user(size, (const u32 __user *)user))
		return -EFAULT;
	if (size < known || size > PAGE_SIZE)
		return -EINVAL;
	return copy_struct_from_user(structure, known, user, size);
}

/* Copies a structure to the caller, no more of it than the size that the caller has stored. */
static long structure_give(void *structure, u32 known, void __user *user)
{
	u32 size;

	if (get_user(size, (u32 __user *)user))
		return -EFAULT;
	if (size < sizeof(size))
		return -EINVAL;
	size = min(size, known);
	*(u32 *)structure = size;
	return copy_to_user(user, structure, size) ? -EFAULT : 0;
}

static long ioctl_info(void __user *user)
{
	struct tl_info info = {
		.abi = TL_ABI_VERSION,
		.entries_max = TL_ENTRIES_MAX,
		.calls_allowed = tlk_dispatch_count(),
		.version = TLK_VERSION,
	};

	return structure_give(&info, sizeof(info), user);
}

static long ioctl_setup(struct file *file, void __user *user)
{
	struct tl_setup setup;
	int error = structure_take(&setup, sizeof(setup), user);

	return error ? error : tlk_setup(file, &setup);
}

static long ioctl_stats(struct tlk_ring *ring, void __user *user)
{
	struct tl_stats stats = {};

	tlk_setup_stats(ring, &stats);
	return structure_give(&stats, sizeof(stats), user);
}

/* A worker enters once, so the slower ioctl costs it nothing. */
static long ioctl_enter(struct tlk_ring *ring, struct file *file)
{
	int error = tlk_enter_check(ring);

	return error ? error : tlk_worker_serve(ring, file);
}

/* The ioctls on a worker ring, which the caller names by the ring's address. */
static long ioctl_queue(struct tlk_ring *ring, struct file *file, unsigned int command,
			unsigned long address)
{
	if (ring->mm != current->mm)
		return -EPERM;
	if (!ring->queue || !tlk_ring_is_at(ring, address))
		return -EINVAL;
	if (command == TL_IOC_ENTER)
		return ioctl_enter(ring, file);
	if (command == TL_IOC_EXIT)
		tlk_queue_shut(ring);
	else if (!ring->completions)
		return -EINVAL;
	else
		tlk_queue_wake_pollers(ring->queue);
	return 0;
}

/* Does the descriptor belong to the ring that is mapped at this address? */
static long ioctl_ring(struct tlk_ring *ring, unsigned long address)
{
	if (ring->mm != current->mm)
		return -EPERM;
	return tlk_ring_is_at(ring, address) ? 0 : -EINVAL;
}

static long ioctl_switch(void __user *user)
{
	struct tl_switch request;
	int error = structure_take(&request, sizeof(request), user);

	if (error)
		return error;
	if (request.mode > TL_MODE_SUPERVISOR || request.flags & ~TL_SWITCH_FLAGS ||
	    (request.flags && request.mode != TL_MODE_SUPERVISOR) ||
	    memchr_inv(request.reserved, 0, sizeof(request.reserved)))
		return -EINVAL;
	error = tlk_supervisor_switch(&request);
	if (put_user(request.refusal, &((struct tl_switch __user *)user)->refusal))
		return error ? error : -EFAULT;
	return error;
}

static long ioctl_supervisor(void __user *user)
{
	struct tl_supervisor info = {
		.processes = tlk_processes_count(),
		.refusals = tlk_supervisor_refusals(),
	};

	return structure_give(&info, sizeof(info), user);
}

static long ioctl_processes(void __user *user)
{
	struct tl_process *entries;
	struct tl_processes list;
	int error = structure_take(&list, sizeof(list), user);
	u32 i, size;

	if (error)
		return error;
	if (list.reserved || !list.entry_size || list.entry_size > PAGE_SIZE)
		return -EINVAL;
	/* As many as there are, and room for some that come meanwhile. */
	list.count = min3(list.count, TLK_LISTED_MAX, tlk_processes_count() + TLK_LISTED_SPARE);
	entries = kvcalloc(max_t(u32, list.count, 1), sizeof(*entries), GFP_KERNEL_ACCOUNT);
	if (!entries)
		return -ENOMEM;
	list.total = tlk_processes_list(entries, list.count);
	list.count = min(list.count, list.total);
	size = min_t(u32, list.entry_size, sizeof(*entries));
	for (i = 0; i < list.count && !error; i++)
		if (copy_to_user(u64_to_user_ptr(list.entries + (u64)i * list.entry_size),
				 &entries[i], size))
			error = -EFAULT;
	kvfree(entries);
	if (!error && copy_to_user(user, &list, sizeof(list)))
		error = -EFAULT;
	return error;
}

/*
 * An ioctl's number has the size of the structure as the caller knows it. The structure itself says
 * it, too, and that is looked at.
 */
#define WITHOUT_SIZE(command) ((command) & ~IOCSIZE_MASK)

static long device_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *user = (void __user *)argument;
	struct tlk_ring *ring = tlk_ring_of(file);

	switch (WITHOUT_SIZE(command)) {
	case WITHOUT_SIZE(TL_IOC_INFO):
		return ioctl_info(user);
	case WITHOUT_SIZE(TL_IOC_SETUP):
		return ioctl_setup(file, user);
	case WITHOUT_SIZE(TL_IOC_SWITCH):
		return ioctl_switch(user);
	case WITHOUT_SIZE(TL_IOC_SUPERVISOR):
		return ioctl_supervisor(user);
	case WITHOUT_SIZE(TL_IOC_PROCESSES):
		return ioctl_processes(user);
	case WITHOUT_SIZE(TL_IOC_STATS):
		return ring ? ioctl_stats(ring, user) : -EINVAL;
	case TL_IOC_ENTER:
	case TL_IOC_EXIT:
	case TL_IOC_WAKE:
		return ring ? ioctl_queue(ring, file, command, argument) : -EINVAL;
	case TL_IOC_RING:
		return ring ? ioctl_ring(ring, argument) : -EINVAL;
	}
	return -ENOTTY;
}

/* A ring without a queue of completions is never readable. */
static __poll_t device_poll(struct file *file, struct poll_table_struct *table)
{
	struct tlk_ring *ring = tlk_ring_of(file);

	if (!ring || !ring->completions)
		return 0;
	return tlk_queue_poll(ring, file, table);
}

static int device_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct tlk_ring *ring = tlk_ring_of(file);

	return ring ? tlk_setup_mmap(ring, vma) : -EINVAL;
}

static int device_open(struct inode *inode, struct file *file)
{
	/* The misc core leaves its own pointer here. NULL means that no ring is set up. */
	file->private_data = NULL;
	return 0;
}

static int device_release(struct inode *inode, struct file *file)
{
	struct tlk_ring *ring = tlk_ring_of(file);

	if (ring)
		tlk_setup_undo(ring);
	return 0;
}

static void device_show_fdinfo(struct seq_file *text, struct file *file)
{
	tlk_setup_show(tlk_ring_of(file), text);
}

static const struct file_operations device_operations = {
	.owner = THIS_MODULE,
	.open = device_open,
	.release = device_release,
	.llseek = device_llseek,
	.poll = device_poll,
	.unlocked_ioctl = device_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = device_mmap,
	.show_fdinfo = device_show_fdinfo,
};

/* Anyone may open it: a request can do nothing that its thread could not do by a plain call. */
static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = KBUILD_MODNAME,
	.fops = &device_operations,
	.mode = 0666,
};

static bool registered;

int __init tlk_device_init(void)
{
	int error = misc_register(&device);

	registered = !error;
	if (error)
		pr_err("cannot register %s: error %d\n", TL_DEVICE, error);
	return error;
}

void tlk_device_exit(void)
{
	if (registered)
		misc_deregister(&device);
}
