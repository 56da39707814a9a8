/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Looks for the attributes of one name in a directory: the kernel's own path walk, and the parts of
 * it whose functions differ between kernels. This header owns these differences; ring/scandir.c
 * owns what is asked for which name.
 */
#ifndef TLK_COMPAT_STATX_H
#define TLK_COMPAT_STATX_H

#include <linux/build_bug.h>
#include <linux/dcache.h>
#include <linux/fs.h>
#include <linux/stat.h>

/* The attributes that statx(2) shows; later kernels have one of their own. */
#ifdef STATX_ATTR_CHANGE_MONOTONIC
#define TLK_STATX_ATTRIBUTES (~STATX_ATTR_CHANGE_MONOTONIC)
#else
#define TLK_STATX_ATTRIBUTES U64_MAX
#endif

/* Finds the kernel's function. Returns 0, or -errno where the log says why it cannot be called. */
int tlk_statx_init(void);

/*
 * statx(2) of a name that is one component, for AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT and one of
 * AT_STATX_*_SYNC. It may sleep. Returns 0 or -errno.
 */
int tlk_statx(int directory, const char *name, unsigned int sync, struct kstat *stat, u32 mask);

/* May the current thread look names up in this directory? 0 or -errno. */
static inline int tlk_may_search(struct file *directory)
{
#ifdef TLK_HAS_FILE_MNT_IDMAP
	return inode_permission(file_mnt_idmap(directory), file_inode(directory), MAY_EXEC);
#else
	return inode_permission(file_mnt_user_ns(directory), file_inode(directory), MAY_EXEC);
#endif
}

/*
 * Tells the file system how many bytes of names have room. FUSE asks its server for so many since
 * upstream commit dabb90391028 (6.16), and for one page where it knows nothing.
 */
static inline void tlk_dir_set_room(struct dir_context *context, unsigned int bytes)
{
#ifdef TLK_HAS_DIR_CONTEXT_COUNT
	context->count = bytes;
#endif
}

typedef int tlk_revalidate_of_name(struct inode *, const struct qstr *, struct dentry *,
				   unsigned int);
typedef int tlk_revalidate_of_dentry(struct dentry *, unsigned int);

/* Asks the file system whether a cached name is still right; above 0 if it is. It may sleep. */
static inline int tlk_revalidate(const struct dentry *directory, const struct qstr *name,
				 struct dentry *dentry)
{
	typeof(dentry->d_op->d_revalidate) ask = dentry->d_op->d_revalidate;

	static_assert(__same_type(*ask, tlk_revalidate_of_name) ||
		      __same_type(*ask, tlk_revalidate_of_dentry));
	return __builtin_choose_expr(
		__same_type(*ask, tlk_revalidate_of_name),
		((tlk_revalidate_of_name *)(void *)ask)(d_inode(directory), name, dentry, 0),
		((tlk_revalidate_of_dentry *)(void *)ask)(dentry, 0));
}

#endif /* TLK_COMPAT_STATX_H */
