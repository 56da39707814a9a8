// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls the kernel's vfs_statx(), which walks to a name and takes its attributes, the mount's among
 * them. This file owns how it is found and called.
 *
 * The function is not in any header, so no prototype can be compared. It is called on kernels whose
 * source was read. On others compound calls are not offered, and nothing here is built that could
 * fail on them. Upstream commit 1b6fe6e0dfec (5.18) gave it a struct filename.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/build_bug.h>
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/init.h>
#include <linux/printk.h>
#include <linux/static_call.h>
#include <linux/version.h>

#include "compat/statx.h"
#include "compat/symbols.h"

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 1, 0) && LINUX_VERSION_CODE < KERNEL_VERSION(7, 3, 0)

static int no_statx(int directory, struct filename *name, int flags, struct kstat *stat, u32 mask)
{
	return -ENOSYS;
}

DEFINE_STATIC_CALL(statx, no_statx);

int __init tlk_statx_init(void)
{
	void *address = tlk_symbol("vfs_statx");

	if (!address) {
		pr_info("TL_NR_SCANDIR is not offered: this kernel has no vfs_statx()\n");
		return -ENOENT;
	}
	static_call_update(statx, address);
	return 0;
}

/*
 * The walk reads the name of the structure alone. Nobody puts it: the count is for its owner, which
 * is this function. Its type is int or atomic_t.
 */
int tlk_statx(int directory, const char *name, unsigned int sync, struct kstat *stat, u32 mask)
{
	struct filename filename = { .name = name };

	BUILD_BUG_ON(sizeof(filename.refcnt) != sizeof(int));
	*(int *)&filename.refcnt = 1;
	return static_call(statx)(directory, &filename,
				  AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | sync, stat, mask);
}

#else

int __init tlk_statx_init(void)
{
	pr_info("TL_NR_SCANDIR is not offered: vfs_statx() is known of 6.1 to 7.2, not of %u.%u\n",
		LINUX_VERSION_CODE >> 16, LINUX_VERSION_CODE >> 8 & 0xff);
	return -EOPNOTSUPP;
}

int tlk_statx(int directory, const char *name, unsigned int sync, struct kstat *stat, u32 mask)
{
	return -ENOSYS;
}

#endif
