// SPDX-License-Identifier: GPL-2.0-only
/*
 * A walk returns what readdir(3) and fstatat(2) find, with every attribute and in the same order:
 * in a tree with paths that are too long for the kernel, names of any bytes, links in circles, and
 * directories that may not be read or not be searched.
 */
#include "backends/walk/tree.h"

#include <sys/sysmacros.h>

struct seen {
	char *path;
	enum tl_walk_kind kind;
	int error;
	unsigned int depth;
	struct stat stat;
};

struct list {
	struct seen *seen;
	size_t n, room;
};

static struct seen *list_add(struct list *list)
{
	if (list->n == list->room) {
		list->room = 2 * list->room + 64;
		list->seen = realloc(list->seen, list->room * sizeof(*list->seen));
		CHECK(list->seen);
	}
	memset(&list->seen[list->n], 0, sizeof(*list->seen));
	return &list->seen[list->n++];
}

static void list_free(struct list *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->seen[i].path);
	free(list->seen);
	*list = (struct list){ 0 };
}

/* ---- By plain calls of the C library ------------------------------------------------------- */

struct name {
	char text[256];
	uint64_t inode;
};

static unsigned int order;

static int compare_names(const void *a, const void *b)
{
	const struct name *one = a, *other = b;

	if (order == TL_WALK_BY_NAME)
		return strcmp(one->text, other->text);
	return one->inode < other->inode ? -1 : one->inode > other->inode;
}

static void visit(struct list *list, int at, const char *name, const char *path,
		  unsigned int depth, bool leave);

static void visit_directory(struct list *list, int fd, const char *path, unsigned int depth,
			    bool leave)
{
	struct name *names = malloc((MANY + 64) * sizeof(*names));
	DIR *dir = fdopendir(fd);
	struct dirent *entry;
	size_t n = 0;

	CHECK(names && dir);
	while ((entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		strcpy(names[n].text, entry->d_name);
		names[n++].inode = entry->d_ino;
	}
	if (order)
		qsort(names, n, sizeof(*names), compare_names);
	for (size_t i = 0; i < n; i++) {
		char *longer = NULL;

		CHECK(asprintf(&longer, "%s/%s", path, names[i].text) > 0);
		visit(list, fd, names[i].text, longer, depth + 1, leave);
		free(longer);
	}
	free(names);
	closedir(dir);
}

static void visit(struct list *list, int at, const char *name, const char *path,
		  unsigned int depth, bool leave)
{
	struct seen *seen = list_add(list), once;
	int fd;

	seen->path = strdup(path);
	seen->depth = depth;
	if (fstatat(at, name, &seen->stat, AT_SYMLINK_NOFOLLOW))
		seen->error = -errno;
	if (seen->error || !S_ISDIR(seen->stat.st_mode))
		return;
	once = *seen;
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		visit_directory(list, fd, path, depth, leave);
	} else {
		seen = list_add(list);
		*seen = once;
		seen->error = -errno;
		seen->kind = TL_WALK_UNREADABLE;
		seen->path = strdup(path);
	}
	if (!leave)
		return;
	seen = list_add(list);
	*seen = once;
	seen->kind = TL_WALK_LEFT;
	seen->path = strdup(path);
}

/* ---- By the library ------------------------------------------------------------------------ */

static void stat_of(struct stat *stat, const struct tl_scan_entry *entry)
{
	stat->st_dev = makedev(entry->dev_major, entry->dev_minor);
	stat->st_ino = entry->ino;
	stat->st_nlink = entry->nlink;
	stat->st_mode = entry->mode;
	stat->st_uid = entry->uid;
	stat->st_gid = entry->gid;
	stat->st_rdev = makedev(entry->rdev_major, entry->rdev_minor);
	stat->st_size = (off_t)entry->bytes;
	stat->st_blksize = entry->blksize;
	stat->st_blocks = (blkcnt_t)entry->blocks;
	stat->st_atim = (struct timespec){ entry->atime_sec, entry->atime_nsec };
	stat->st_mtim = (struct timespec){ entry->mtime_sec, entry->mtime_nsec };
	stat->st_ctim = (struct timespec){ entry->ctime_sec, entry->ctime_nsec };
}

static void walk_through(struct list *list, const char *folder, unsigned int flags,
			 unsigned int descriptors)
{
	struct tl_walk *walk = walk_new(folder, flags, descriptors);
	const struct tl_walk_entry *entry;
	int result;

	while ((result = tl_walk_next(walk, &entry)) == 1) {
		struct seen *seen = list_add(list);
		int at = tl_walk_fd(walk);
		struct stat stat;

		seen->path = strdup(entry->path);
		seen->kind = entry->kind;
		seen->error = entry->error;
		seen->depth = entry->depth;
		if (!entry->attributes->error)
			stat_of(&seen->stat, entry->attributes);
		CHECK_EQ(entry->path_bytes, strlen(entry->path));
		CHECK_EQ(entry->name_bytes, strlen(entry->name));
		/* The name means the same file, relative to the descriptor. */
		if (fstatat(at, entry->name, &stat, AT_SYMLINK_NOFOLLOW)) {
			CHECK_EQ(entry->attributes->error, -errno);
			CHECK_EQ(errno, EACCES);
		} else {
			CHECK_EQ(stat.st_ino, seen->stat.st_ino);
		}
	}
	CHECK_EQ(result, 0);
	CHECK_EQ(tl_walk_next(walk, &entry), 0);
	CHECK_EQ(tl_walk_backend(walk), WALK_BACKEND);
	CHECK_EQ(!tl_walk_reason(walk), WALK_BACKEND == TL_BACKEND_MODULE);
	tl_walk_destroy(walk);
}

/* Breadth first, entries come by depth; then both lists are brought into one order. */
static int compare_depths(const void *a, const void *b)
{
	const struct seen *one = a, *other = b;

	int paths = strcmp(one->path, other->path);

	if (one->depth != other->depth)
		return one->depth < other->depth ? -1 : 1;
	return paths ? paths : (int)one->kind - (int)other->kind;
}

static void lists_are_equal(struct list *plain, struct list *walked)
{
	CHECK_EQ(walked->n, plain->n);
	for (size_t i = 0; i < plain->n; i++) {
		struct seen *one = &plain->seen[i], *other = &walked->seen[i];

		if (strcmp(one->path, other->path))
			FAIL("entry %zu is %s, expected %s", i, other->path, one->path);
		CHECK_EQ(other->kind, one->kind);
		CHECK_EQ(other->error, one->error);
		CHECK_EQ(other->depth, one->depth);
		/* Reading a directory may have changed its time of access. */
		one->stat.st_atim = other->stat.st_atim = (struct timespec){ 0 };
		if (memcmp(&one->stat, &other->stat, sizeof(one->stat)))
			FAIL("the attributes of %s differ", one->path);
	}
}

static void compare(const char *folder, unsigned int flags, unsigned int descriptors)
{
	struct list plain = { 0 }, walked = { 0 };
	int before = open_descriptors();

	order = flags & (TL_WALK_BY_NAME | TL_WALK_BY_INODE);
	visit(&plain, AT_FDCWD, folder, folder, 0, flags & TL_WALK_LEAVE);
	walk_through(&walked, folder, flags, descriptors);
	CHECK(plain.n > MANY + DEEP);
	if (flags & TL_WALK_BREADTH_FIRST) {
		for (size_t i = 1; i < walked.n; i++)
			if (walked.seen[i].kind != TL_WALK_UNREADABLE)
				CHECK(walked.seen[i].depth + 1 >= walked.seen[i - 1].depth);
		qsort(plain.seen, plain.n, sizeof(*plain.seen), compare_depths);
		qsort(walked.seen, walked.n, sizeof(*walked.seen), compare_depths);
	}
	lists_are_equal(&plain, &walked);
	list_free(&plain);
	list_free(&walked);
	CHECK_EQ(open_descriptors(), before);
}

int main(void)
{
	static const unsigned int flags[] = {
		0, TL_WALK_LEAVE, TL_WALK_BY_NAME, TL_WALK_BY_NAME | TL_WALK_LEAVE,
		TL_WALK_BY_INODE, TL_WALK_BREADTH_FIRST, TL_WALK_BREADTH_FIRST | TL_WALK_BY_NAME,
		TL_WALK_ONE_DEVICE, TL_WALK_FOLLOW_ROOT,
	};
	char folder[32];

	tree_make(folder);
	rights_of_others(true);
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		compare(folder, flags[i], 0);
		compare(folder, flags[i], 3);
	}
	rights_of_others(false);
	tree_remove(AT_FDCWD, folder);
	return 0;
}
