/* SPDX-License-Identifier: MIT */
/*
 * The data of a walk, which its three parts share.
 *
 * Three parts work on one tree of `struct dir`:
 *   visit.c    opens, reads and examines directories, many at a time, by wrapped calls
 *   handles.c  bounds how many of them are open at once
 *   print.c    follows in the order of a depth-first walk, adds up and prints
 * It owns no behaviour. Everything belongs to the one thread that runs the scheduler.
 */
#ifndef WALK_H
#define WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdnoreturn.h>
#include <sys/stat.h>
#include <trapless.h>

/* Bounds. */
#define CHUNK_BYTES 4096u	/* one getdents64 */
#define CHUNK_ENTRIES (CHUNK_BYTES / 24)	/* the shortest record takes 24 bytes */
#define WINDOW_DIRS 16u		/* directories under way at once */
#define HANDLES_MAX 512u	/* directories open at once */
#define FLUSH_AT 128u		/* calls in one crossing, unless --batch says otherwise */
/* du and find read a directory in groups of this many entries and sort long ones by inode. */
#define GROUP_ENTRIES 100000u
#define SORT_ENTRIES 10000u

struct options {
	const char *tree;
	bool find;		/* print every name, as `find TREE` does */
	bool all;		/* print a line for files too, as `du -a` does */
	bool summary;		/* print the tree's line only, as `du -s` does */
	bool one_device;	/* stay on one file system: -x */
	bool stats;		/* say on standard error what it took */
	uint32_t flush_at;
};

enum kind {
	KIND_FILE = 1,		/* counted already; kept because it is printed */
	KIND_LINK,		/* one of a file's several names: counted where it is met first */
	KIND_DIR,
	KIND_LOOP,		/* a directory that is its own ancestor, by a bind mount */
	KIND_ERROR,		/* could not be examined */
};

/* A file with several names. */
struct link {
	uint64_t dev, ino, bytes;
};

/*
 * One name in a directory. It lies where getdents64 put it, and has that call's layout up to the
 * name: d_off is of no use to us and makes room for what was found out, d_type for its kind.
 */
struct record {
	uint64_t ino;
	union {
		uint64_t bytes;		/* KIND_FILE */
		struct link *link;	/* KIND_LINK */
		struct dir *dir;	/* KIND_DIR; KIND_LOOP: the ancestor */
		int error;		/* KIND_ERROR: an errno */
	};
	uint16_t length;	/* of the whole record, a multiple of 8 */
	uint8_t kind;		/* d_type as read, then enum kind */
	char name[];
};
_Static_assert(offsetof(struct record, name) == 19, "struct linux_dirent64 has its name at 19");

/* Records one after the other; or, where they are sorted, an index of others' records. */
struct block {
	struct block *next;
	size_t used;		/* bytes of data */
	bool is_index;		/* data is an array of struct record * */
	_Alignas(8) char data[];
};

/* What one call of newfstatat answered. */
struct answer {
	int64_t result;
	struct stat stat;
};

/* A piece of a directory while it is read and its entries are examined. Recycled. */
struct chunk {
	struct chunk *next;	/* in the pool */
	struct block *block;	/* CHUNK_BYTES of data */
	int64_t result;		/* of getdents64 */
	struct answer answers[CHUNK_ENTRIES];
};

struct dir {
	struct walk *walk;
	struct dir *parent;	/* NULL: the root of the walk */
	const char *name;	/* in the parent's record */
	uint64_t dev, ino;
	uint64_t bytes;		/* its own, its files', and its finished directories' */

	/* visit.c */
	struct dir *below;	/* on the stack of directories that wait */
	int64_t opened;		/* result of openat */
	struct chunk *reading, *examining;
	struct block *group, **group_end;	/* kept records that print.c must not see yet */
	uint32_t entries;	/* of the group */
	uint32_t waiting;	/* subdirectories not opened yet: they need our handle */
	bool ended;		/* no entry will come any more */
	bool partial;		/* an error came after some entries */
	int error;		/* why it could not be opened or read */

	/* handles.c */
	int fd;			/* -1: not open */
	struct dir *older, *newer;	/* while it is idle: open only for those that wait */

	/* print.c */
	struct block *records, **records_end;
	struct block *at;	/* the next record is in this block, ... */
	size_t offset;		/* ... that far in */
	size_t path_length;
};

/* Device and inode of files that were counted. Open addressing, a power of two; ino 0 is free. */
struct seen {
	struct link *slots;
	size_t mask, used;
};

struct walk {
	struct options options;
	struct tl_sched *sched;
	int status;		/* exit status */

	/* visit.c */
	struct dir *stack;	/* those that wait, the first in depth-first order on top */
	uint32_t under_way, window;
	uint64_t dev;		/* of the tree's root */
	struct chunk *pool;

	/* handles.c */
	uint32_t handles, handles_max;
	uint32_t closing;	/* handles given up whose close has not been made yet */
	struct dir *oldest, *newest;

	/* print.c */
	struct dir *dir;	/* where the depth-first walk stands */
	char *path;
	size_t path_length, path_room;
	struct seen seen;
	char *out;
	size_t out_used;
	bool out_at_once;	/* a person is watching */
};

/* walk.c */
void *must(void *memory);
noreturn void die(const char *what, int error);

/* visit.c */
void visit(struct walk *walk, struct dir *root);
void visit_more(struct walk *walk);
struct dir *dir_create(struct walk *walk, struct dir *parent, const struct stat *stat);
void visit_end(struct walk *walk);
void call(struct walk *walk, struct tl_thread *then, int64_t *result, uint32_t nr, uint64_t a0,
	  uint64_t a1, uint64_t a2, uint64_t a3);
struct tl_thread *thread(struct walk *walk, tl_entry entry, void *arg, unsigned int syncs);

/* handles.c */
void handles_init(struct walk *walk);
int handle_reserve(struct dir *dir, int *at);
void handle_unused(struct walk *walk);
void handle_idle(struct dir *dir);
void handle_close(struct dir *dir);
bool handles_shrink(struct dir *dir, int error);

/* print.c */
void print_init(struct walk *walk);
void print_tree(struct walk *walk, struct dir *root);
void print_file(struct walk *walk, const struct stat *stat);
void print_error(struct walk *walk, int error);
void print_more(struct walk *walk);
void print_end(struct walk *walk);

#endif
