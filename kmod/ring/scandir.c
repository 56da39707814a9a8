// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes the compound call TL_NR_SCANDIR. This file owns what it does with each name; it leaves all
 * rights to the kernel's functions, and compat/statx.h owns which these are.
 *
 * First the names are collected: each is copied for the module, and written to the user's entry
 * with -EINTR as its error. Then their attributes are looked up, while no lock is held, and written
 * over that. So a name that the directory has given is never lost, wherever the second part stops.
 * The module reads nothing back from the user's buffer.
 */
#include <linux/align.h>
#include <linux/build_bug.h>
#include <linux/cred.h>
#include <linux/dcache.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/kdev_t.h>
#include <linux/kernel.h>
#include <linux/limits.h>
#include <linux/moduleparam.h>
#include <linux/mount.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/stat.h>
#include <linux/string.h>
#include <linux/trapless.h>
#include <linux/uaccess.h>
#include <linux/uidgid.h>
#include <asm/word-at-a-time.h>

#include "compat/statx.h"
#include "compat/task.h"
#include "limits.h"
#include "ring/dispatch.h"
#include "ring/scandir.h"

/* The module's copy of a name. */
struct name {
	s64 next;	/* position of the entry behind it */
	u16 length;
	u8 type;
	char text[] __aligned(8);	/* filled up with zeros, as in the user's entry */
};

static size_t padded(unsigned int length)
{
	return ALIGN(length + 1, 8);
}

static struct name *name_after(struct name *name)
{
	return (void *)name->text + padded(name->length);
}

/* One request. It lives on the thread's stack. */
struct scan {
	struct dir_context context;
	struct file *directory;
	int fd;
	u32 mask;
	u32 flags;
	char __user *to;	/* the next entry */
	size_t left;		/* bytes behind it */
	struct name *next;	/* in the buffer of names */
	struct name *last;	/* that was collected, or NULL */
	void *end;		/* of the buffer of names */
	int error;		/* why no more names were taken */
	struct kstat self;	/* of the directory; its mount is that of most names */
};

/* ---- Names ---------------------------------------------------------------------------------- */

static bool is_dots(const char *text, int length)
{
	return text[0] == '.' && (length == 1 || (length == 2 && text[1] == '.'));
}

/*
 * Copies a name and fills it up with zeros. Returns whether it has no slash. FUSE may send a zero
 * byte in a name: the program sees the name up to there, as by getdents64, and so does statx().
 */
static bool copy_name(struct name *name, const char *text, int length)
{
	const struct word_at_a_time constants = WORD_AT_A_TIME_CONSTANTS;
	u64 *const words = (u64 *)name->text;
	const unsigned int count = padded(length) / sizeof(*words);
	unsigned long slashes = 0, zeros = 0, bits;
	unsigned int i;

	words[count - 1] = ~0ull;
	memcpy(name->text, text, length);
	for (i = 0; i < count; i++) {
		slashes |= has_zero(words[i] ^ REPEAT_BYTE('/'), &bits, &constants);
		zeros |= has_zero(words[i], &bits, &constants);
	}
	words[count - 1] &= (1ull << length % 8 * 8) - 1;
	if (unlikely(zeros)) {
		length = strlen(name->text);
		memset(name->text + length, 0, padded(length) - length);
	}
	name->length = length;
	return !slashes;
}

/* The first 8 bytes of an entry, in one word. */
static u64 entry_head(const struct name *name, int error)
{
	BUILD_BUG_ON(offsetof(struct tl_scan_entry, name_at) != 2);
	BUILD_BUG_ON(offsetof(struct tl_scan_entry, name_bytes) != 4);
	BUILD_BUG_ON(offsetof(struct tl_scan_entry, error) != 6);
	return (sizeof(struct tl_scan_entry) + padded(name->length)) |
	       sizeof(struct tl_scan_entry) << 16 | (u64)name->length << 32 |
	       (u64)(u16)error << 48;
}

/* Writes the part of an entry that the directory knows. */
static bool put_name(char __user *to, const struct name *name, u64 ino)
{
	struct tl_scan_entry __user *entry = (void __user *)to;
	u64 __user *text = (u64 __user *)(entry + 1);
	const u64 head = entry_head(name, -EINTR);
	const u64 *words = (const u64 *)name->text;
	unsigned int i;

	if (!user_write_access_begin(to, sizeof(*entry) + padded(name->length)))
		return false;
	unsafe_put_user(head, (u64 __user *)entry, fault);
	unsafe_put_user(ino, &entry->d_ino, fault);
	for (i = 0; i < padded(name->length) / sizeof(*words); i++)
		unsafe_put_user(words[i], &text[i], fault);
	user_write_access_end();
	return true;
fault:
	user_write_access_end();
	return false;
}

/* Takes a name, or returns false: then the directory gives it to the next request. */
static bool collect(struct dir_context *context, const char *text, int length, loff_t position,
		    u64 ino, unsigned int type)
{
	struct scan *scan = container_of(context, struct scan, context);
	struct name *name = scan->next;
	size_t size;

	if (unlikely(length <= 0 || length >= PATH_MAX)) {
		scan->error = -EIO;
		return false;
	}
	size = sizeof(struct tl_scan_entry) + padded(length);
	if (size > scan->left || name->text + padded(length) > (char *)scan->end) {
		scan->error = -EINVAL;
		return false;
	}
	if (scan->last) {
		if (signal_pending(current))
			return false;
		scan->last->next = position;
	}
	if (!copy_name(name, text, length)) {
		scan->error = -EIO;
		return false;
	}
	if (scan->flags & TL_SCAN_NO_DOTS && is_dots(name->text, name->length))
		return true;
	/* Later kernels have flags above the type. */
	name->type = type & S_DT_MASK;
	if (!put_name(scan->to, name, ino)) {
		scan->error = -EFAULT;
		return false;
	}
	scan->last = name;
	scan->next = name_after(name);
	size = sizeof(struct tl_scan_entry) + padded(name->length);
	scan->to += size;
	scan->left -= size;
	return true;
}

/*
 * Collects names. Returns 0 or -errno; names that were taken come before an error. File systems may
 * give few names at a time: where all of them were left out, the directory has not ended, and a
 * file system may go on like that without end.
 */
static int collect_names(struct scan *scan)
{
	struct file *directory = scan->directory;
	loff_t before;
	int error;

	/* A file that is no directory may have other things in the lock's place. */
	if (!S_ISDIR(file_inode(directory)->i_mode))
		return -ENOTDIR;
	tlk_dir_set_room(&scan->context, min_t(size_t, scan->left, TLK_NAMES_BYTES));
	mutex_lock(&directory->f_pos_lock);
	for (;;) {
		before = directory->f_pos;
		error = iterate_dir(directory, &scan->context);
		if (error || scan->error || scan->last || directory->f_pos == before)
			break;
		if (signal_pending(current) && tlk_must_return()) {
			error = -EINTR;
			break;
		}
	}
	if (scan->last)
		scan->last->next = scan->context.pos;
	mutex_unlock(&directory->f_pos_lock);
	return error < 0 ? error : scan->error;
}

/* ---- Attributes ----------------------------------------------------------------------------- */

/*
 * The cached dentry of a name, if the kernel's walk would end there without any more work, else
 * NULL: the name is not cached, is being mounted on, or its file system says that it has changed.
 * `quickly` asks for no file system.
 */
static struct dentry *find_cached(struct dentry *directory, const struct name *name, bool quickly)
{
	struct qstr text = QSTR_INIT(name->text, name->length);
	struct dentry *dentry;
	unsigned int flags;

	text.hash = full_name_hash(directory, text.name, text.len);
	if (unlikely(directory->d_flags & DCACHE_OP_HASH) &&
	    directory->d_op->d_hash(directory, &text) < 0)
		return NULL;
	dentry = d_lookup(directory, &text);
	if (!dentry)
		return NULL;
	/* A dentry has its inode before its flags say so; see __d_set_inode_and_type(). */
	flags = smp_load_acquire(&dentry->d_flags);
	if (unlikely(flags & DCACHE_MANAGED_DENTRY || d_flags_negative(flags)))
		goto walk;
	/* What the kernel reports of a block device is not all in its inode. */
	if (unlikely(S_ISBLK(d_inode(dentry)->i_mode)))
		goto walk;
	if (unlikely(flags & DCACHE_OP_REVALIDATE) &&
	    (quickly || tlk_revalidate(directory, &text, dentry) <= 0))
		goto walk;
	return dentry;
walk:
	dput(dentry);
	return NULL;
}

/* Takes the attributes of a cached name. -ESTALE asks for a walk as well. */
static int take_cached(const struct scan *scan, struct dentry *dentry, struct kstat *stat)
{
	const struct path path = { .mnt = scan->directory->f_path.mnt, .dentry = dentry };
	int error = vfs_getattr(&path, stat, scan->mask, scan->flags & TL_SCAN_SYNC_TYPE);

	stat->mnt_id = scan->self.mnt_id;
	stat->result_mask |= scan->self.result_mask & TL_SCAN_MASK & ~(STATX_BASIC_STATS |
								       STATX_BTIME);
	stat->attributes_mask |= STATX_ATTR_MOUNT_ROOT;
	if (unlikely(dentry == path.mnt->mnt_root))
		stat->attributes |= STATX_ATTR_MOUNT_ROOT;
	return error;
}

/* statx() of one name. A signal that is to be handled leaves time for what is cached alone. */
static int take_attributes(const struct scan *scan, bool use_cache, const struct name *name,
			   struct kstat *stat)
{
	const bool quickly = unlikely(signal_pending(current)) && tlk_must_return();
	struct dentry *dentry;
	int error;

	if (use_cache && !is_dots(name->text, name->length)) {
		dentry = find_cached(scan->directory->f_path.dentry, name, quickly);
		if (dentry) {
			error = take_cached(scan, dentry, stat);
			dput(dentry);
			if (likely(error != -ESTALE))
				return error;
		}
	}
	if (quickly)
		return -EINTR;
	/* The kernel's walk would end at the directory itself. */
	if (unlikely(!name->length))
		return -ENOENT;
	return tlk_statx(scan->fd, name->text, scan->flags & TL_SCAN_SYNC_TYPE, stat, scan->mask);
}

/* Writes the rest of an entry; every byte of it, and no padding, is written here. */
static bool put_attributes(char __user *to, const struct name *name, const struct kstat *stat,
			   int error)
{
	struct tl_scan_entry __user *entry = (void __user *)to;
	const u64 head = entry_head(name, error);
	const u32 uid = error ? 0 : from_kuid_munged(current_user_ns(), stat->uid);
	const u32 gid = error ? 0 : from_kgid_munged(current_user_ns(), stat->gid);

	if (!user_write_access_begin(to, sizeof(*entry)))
		return false;
	unsafe_put_user(name->next, &entry->d_off, fault);
	unsafe_put_user(stat->result_mask & TL_SCAN_MASK, &entry->mask, fault);
	unsafe_put_user(stat->blksize, &entry->blksize, fault);
	unsafe_put_user(stat->attributes & TLK_STATX_ATTRIBUTES, &entry->attributes, fault);
	unsafe_put_user(stat->attributes_mask, &entry->attributes_mask, fault);
	unsafe_put_user(stat->nlink, &entry->nlink, fault);
	unsafe_put_user(uid, &entry->uid, fault);
	unsafe_put_user(gid, &entry->gid, fault);
	unsafe_put_user(stat->mode, &entry->mode, fault);
	unsafe_put_user(name->type, &entry->type, fault);
	unsafe_put_user(0, &entry->reserved, fault);
	unsafe_put_user(stat->ino, &entry->ino, fault);
	unsafe_put_user(stat->size, &entry->bytes, fault);
	unsafe_put_user(stat->blocks, &entry->blocks, fault);
	unsafe_put_user(stat->atime.tv_sec, &entry->atime_sec, fault);
	unsafe_put_user(stat->btime.tv_sec, &entry->btime_sec, fault);
	unsafe_put_user(stat->ctime.tv_sec, &entry->ctime_sec, fault);
	unsafe_put_user(stat->mtime.tv_sec, &entry->mtime_sec, fault);
	unsafe_put_user(stat->atime.tv_nsec, &entry->atime_nsec, fault);
	unsafe_put_user(stat->btime.tv_nsec, &entry->btime_nsec, fault);
	unsafe_put_user(stat->ctime.tv_nsec, &entry->ctime_nsec, fault);
	unsafe_put_user(stat->mtime.tv_nsec, &entry->mtime_nsec, fault);
	unsafe_put_user(MAJOR(stat->rdev), &entry->rdev_major, fault);
	unsafe_put_user(MINOR(stat->rdev), &entry->rdev_minor, fault);
	unsafe_put_user(MAJOR(stat->dev), &entry->dev_major, fault);
	unsafe_put_user(MINOR(stat->dev), &entry->dev_minor, fault);
	unsafe_put_user(stat->mnt_id, &entry->mnt_id, fault);
	/* Last, with the error: where anything above faults, -EINTR stays. */
	unsafe_put_user(head, (u64 __user *)entry, fault);
	user_write_access_end();
	return true;
fault:
	user_write_access_end();
	return false;
}

/* A plain statx() would be made again after these, or end with -EINTR. */
static int without_restart(int error)
{
	return error <= -ERESTARTSYS && error >= -ERESTART_RESTARTBLOCK ? -EINTR : error;
}

/*
 * Takes the attributes of all collected names. Most are cached, and then the right to search the
 * directory is asked here, once. Where it is missing, or nothing is known of the mount, the
 * kernel's walk says so of each name.
 */
static void add_attributes(struct scan *scan, struct name *name, char __user *to)
{
	const bool use_cache =
		!tlk_may_search(scan->directory) &&
		!tlk_statx(scan->fd, ".", scan->flags & TL_SCAN_SYNC_TYPE, &scan->self,
			   scan->mask);
	struct kstat stat;
	int error;

	for (; name != scan->next; name = name_after(name)) {
		if (fatal_signal_pending(current))
			return;
		error = without_restart(take_attributes(scan, use_cache, name, &stat));
		if (unlikely(error))
			memset(&stat, 0, sizeof(stat));
		if (!put_attributes(to, name, &stat, error))
			return;
		to += sizeof(struct tl_scan_entry) + padded(name->length);
		cond_resched();
	}
}

static long scan_directory(const struct pt_regs *regs)
{
	struct scan scan = {
		.context.actor = collect,
		.fd = regs->TLK_ARG0,
		.to = (char __user *)regs->TLK_ARG1,
		.left = min_t(size_t, regs->TLK_ARG2, INT_MAX),
		.mask = regs->TLK_ARG3,
		.flags = regs->TLK_ARG4,
	};
	char __user *to = scan.to;
	struct name *names;
	long result;

	if (scan.flags & ~TL_SCAN_FLAGS || scan.mask & STATX__RESERVED ||
	    (scan.flags & TL_SCAN_SYNC_TYPE) == TL_SCAN_SYNC_TYPE)
		return -EINVAL;
	scan.mask &= TL_SCAN_MASK;
	names = kmalloc(TLK_NAMES_BYTES, GFP_KERNEL);
	if (!names)
		return -ENOMEM;
	scan.next = names;
	scan.end = (void *)names + TLK_NAMES_BYTES;
	result = -EBADF;
	scan.directory = fget(scan.fd);
	if (!scan.directory)
		goto out;
	result = collect_names(&scan);
	if (scan.last) {
		add_attributes(&scan, names, to);
		result = scan.to - to;
	}
	fput(scan.directory);
out:
	kfree(names);
	return result;
}

static long call_beyond(const struct pt_regs *regs)
{
	return regs->TLK_NR == TL_NR_SCANDIR ? scan_directory(regs) : tlk_dispatch_refuse(regs);
}

/* Set when the module is loaded, and then what it came to. */
static bool scandir = true;
module_param(scandir, bool, 0444);
MODULE_PARM_DESC(scandir, "offer TL_NR_SCANDIR where the kernel has what it takes");

void __init tlk_scandir_init(void)
{
	scandir = scandir && !tlk_statx_init();
	if (scandir)
		tlk_dispatch_set_beyond(call_beyond);
}
