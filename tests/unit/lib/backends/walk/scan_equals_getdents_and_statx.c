// SPDX-License-Identifier: GPL-2.0-only
/*
 * tl_scan returns the entries that getdents64(2) returns, in its order, and of each what statx(2)
 * says. One scan reads many directories, one after the other. An error that comes behind entries is
 * returned behind them.
 */
#include "backends/walk/tree.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MASK (STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID)

struct dirent64_head {
	uint64_t inode;
	int64_t offset;
	uint16_t bytes;
	uint8_t type;
	char name[];
};

static void attributes_are_those_of_statx(int fd, const struct tl_scan_entry *entry)
{
	struct statx x;

	CHECK_EQ(syscall(SYS_statx, fd, tl_scan_name(entry), AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
			 MASK, &x), 0);
	CHECK_EQ(entry->mask & MASK, x.stx_mask & MASK);
	CHECK_EQ(entry->blksize, x.stx_blksize);
	CHECK_EQ(entry->attributes, x.stx_attributes);
	CHECK_EQ(entry->attributes_mask, x.stx_attributes_mask);
	CHECK_EQ(entry->nlink, x.stx_nlink);
	CHECK_EQ(entry->uid, x.stx_uid);
	CHECK_EQ(entry->gid, x.stx_gid);
	CHECK_EQ(entry->mode, x.stx_mode);
	CHECK_EQ(entry->ino, x.stx_ino);
	CHECK_EQ(entry->bytes, x.stx_size);
	CHECK_EQ(entry->blocks, x.stx_blocks);
	CHECK_EQ(entry->mtime_sec, x.stx_mtime.tv_sec);
	CHECK_EQ(entry->mtime_nsec, x.stx_mtime.tv_nsec);
	CHECK_EQ(entry->ctime_sec, x.stx_ctime.tv_sec);
	CHECK_EQ(entry->ctime_nsec, x.stx_ctime.tv_nsec);
	CHECK_EQ(entry->btime_sec, x.stx_btime.tv_sec);
	CHECK_EQ(entry->btime_nsec, x.stx_btime.tv_nsec);
	CHECK_EQ(entry->rdev_major, x.stx_rdev_major);
	CHECK_EQ(entry->rdev_minor, x.stx_rdev_minor);
	CHECK_EQ(entry->dev_major, x.stx_dev_major);
	CHECK_EQ(entry->dev_minor, x.stx_dev_minor);
	CHECK_EQ(entry->mnt_id, x.stx_mnt_id);
}

static unsigned int compare(struct tl_scan *scan, const char *path)
{
	static char names[65536] __attribute__((aligned(8)));
	int fd = MUST(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	const struct tl_scan_entry *entry;
	unsigned int n = 0;
	long bytes;

	CHECK_EQ(tl_scan_open(scan, AT_FDCWD, path), 0);
	while ((bytes = MUST(syscall(SYS_getdents64, fd, names, sizeof(names)))) != 0)
		for (long at = 0; at < bytes;) {
			const struct dirent64_head *name = (void *)(names + at);

			at += name->bytes;
			if (!strcmp(name->name, ".") || !strcmp(name->name, ".."))
				continue;
			CHECK_EQ(tl_scan_next(scan, &entry), 1);
			CHECK(!strcmp(tl_scan_name(entry), name->name));
			CHECK_EQ(entry->name_bytes, strlen(name->name));
			CHECK_EQ(entry->size % 8, 0);
			CHECK_EQ(entry->type, name->type);
			CHECK_EQ(entry->d_ino, name->inode);
			CHECK_EQ(entry->d_off, name->offset);
			CHECK_EQ(entry->error, 0);
			attributes_are_those_of_statx(tl_scan_fd(scan), entry);
			n++;
		}
	CHECK_EQ(tl_scan_next(scan, &entry), 0);
	CHECK_EQ(tl_scan_next(scan, &entry), 0);
	close(fd);
	return n;
}

/* Its position is that of getdents64(2): a descriptor of a removed directory is at its end. */
static void removed_directory_is_at_its_end(struct tl_scan *scan, const char *folder)
{
	const struct tl_scan_entry *entry;
	char path[64];

	snprintf(path, sizeof(path), "%s/gone", folder);
	MUST(mkdir(path, 0755));
	CHECK_EQ(tl_scan_open(scan, AT_FDCWD, path), 0);
	MUST(rmdir(path));
	CHECK_EQ(tl_scan_next(scan, &entry), 0);
}

/*
 * Names that were read and cannot be returned are no end of the directory. The module needs no more
 * memory for a large directory than for a small one.
 */
static void short_memory_loses_no_name_silently(struct tl_scan *scan, const char *folder)
{
	const struct rlimit none = { 0, 0 };
	const struct tl_scan_entry *entry;
	unsigned int n = 0;
	char path[64];
	int status, result;

#ifdef __SANITIZE_ADDRESS__
	return;		/* it needs memory of its own */
#endif
	snprintf(path, sizeof(path), "%s/many", folder);
	if (MUST(fork()) == 0) {
		CHECK_EQ(tl_scan_open(scan, AT_FDCWD, path), 0);
		MUST(setrlimit(RLIMIT_AS, &none));
		while (malloc(64))
			;
		while ((result = tl_scan_next(scan, &entry)) == 1)
			n++;
		if (result || n != MANY + 1)
			CHECK_EQ(result, -ENOMEM);
		_exit(0);
	}
	MUST(wait(&status));
	CHECK_EQ(status, 0);
}

int main(void)
{
	const struct tl_scan_entry *entry;
	struct tl_scan *scan;
	char folder[32], path[64];
	int before = open_descriptors();

	tree_make(folder);
	CHECK_EQ(tl_scan_create(&scan, MASK, LIB_FLAGS), 0);
	CHECK_EQ(tl_scan_next(scan, &entry), -EBADF);
	CHECK_EQ(compare(scan, folder), 16);
	short_memory_loses_no_name_silently(scan, folder);
	snprintf(path, sizeof(path), "%s/many", folder);
	CHECK_EQ(compare(scan, path), MANY + 1);
	snprintf(path, sizeof(path), "%s/empty", folder);
	CHECK_EQ(compare(scan, path), 0);
	CHECK(compare(scan, "/dev") > 2);
	removed_directory_is_at_its_end(scan, folder);
	CHECK_EQ(tl_scan_backend(scan), WALK_BACKEND);
	CHECK_EQ(tl_scan_open(scan, AT_FDCWD, "/dev/null"), -ENOTDIR);
	CHECK_EQ(tl_scan_fd(scan), -1);
	tl_scan_destroy(scan);
	tree_remove(AT_FDCWD, folder);
	CHECK_EQ(open_descriptors(), before);
	return 0;
}
