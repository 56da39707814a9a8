/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A tree with what walks stumble over, and its way down and out by plain calls. It owns no check.
 */
#ifndef TL_WALK_TREE_H
#define TL_WALK_TREE_H

#include "lib_check.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#define MANY 1200u		/* entries of one directory, more than one request returns */
#define DEEP 40u		/* directories one in another, of names of LONG bytes */
#define LONG 200u

static inline void make_file(int at, const char *name)
{
	int fd = MUST(openat(at, name, O_CREAT | O_WRONLY | O_EXCL | O_CLOEXEC, 0644));

	MUST(write(fd, name, strlen(name)));
	close(fd);
}

static inline int make_directory(int at, const char *name)
{
	MUST(mkdirat(at, name, 0755));
	return MUST(openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

/* Directories one in another, with a file in each. */
static inline void make_deep(int at, unsigned int levels, unsigned int name_bytes)
{
	char name[256];
	int fd = dup(at);

	memset(name, 'd', name_bytes);
	name[name_bytes] = '\0';
	for (unsigned int i = 0; i < levels; i++) {
		int below = make_directory(fd, name);

		make_file(fd, "z");
		close(fd);
		fd = below;
	}
	close(fd);
}

/* Makes the tree in a new folder, whose path it stores. */
static inline void tree_make(char *folder)
{
	char longest[256];
	int at, fd;

	strcpy(folder, "/tmp/walkXXXXXX");
	CHECK(mkdtemp(folder));
	MUST(chmod(folder, 0755));
	at = MUST(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	memset(longest, 'n', 255);
	longest[255] = '\0';
	make_file(at, longest);
	make_file(at, "new\nline");
	make_file(at, "\xff\xfe\x80");
	make_file(at, "..a");
	make_file(at, "...");
	make_file(at, "-dash and space ");
	MUST(mkfifoat(at, "fifo", 0644));
	MUST(symlinkat(".", at, "loop"));
	MUST(symlinkat("nowhere", at, "dangling"));
	MUST(symlinkat("self", at, "self"));
	close(make_directory(at, "empty"));
	fd = make_directory(at, "many");
	for (unsigned int i = 0; i < MANY; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%u", i * 7919 % MANY);
		make_file(fd, name);
	}
	MUST(symlinkat("../many", fd, "up"));
	close(fd);
	make_deep(at, DEEP, LONG);
	fd = make_directory(at, "searchable");
	make_file(fd, "hidden");
	MUST(fchmod(fd, 0111));
	close(fd);
	fd = make_directory(at, "readable");
	make_file(fd, "no attributes");
	close(make_directory(fd, "no way"));
	MUST(fchmod(fd, 0444));
	close(fd);
	close(at);
}

static inline void tree_remove(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct dirent *entry;
	DIR *dir;

	if (fd < 0) {
		MUST(unlinkat(at, name, 0));
		return;
	}
	dir = fdopendir(fd);
	while ((entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			tree_remove(dirfd(dir), entry->d_name);
	closedir(dir);
	MUST(unlinkat(at, name, AT_REMOVEDIR));
}

/* The rights that root has beyond others would make all of the tree readable. */
static inline void rights_of_others(bool without)
{
	if (!getuid())
		MUST(seteuid(without ? 65534 : 0));
}

/* How many descriptors are open. */
static inline int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* What compound calls are to be made by: on the module the tests must not pass by plain calls. */
#define WALK_BACKEND (LIB_FLAGS == TL_MODULE ? TL_BACKEND_MODULE : TL_BACKEND_PLAIN)

static inline struct tl_walk *walk_new(const char *path, unsigned int flags,
				       unsigned int descriptors)
{
	struct tl_walk *walk = NULL;

	CHECK_EQ(tl_walk_create(&walk, AT_FDCWD, path, 0, LIB_FLAGS | flags, descriptors), 0);
	return walk;
}

#endif
