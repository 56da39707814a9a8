/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A FUSE file system of one directory with a few files. Each answer to a read of the directory has
 * one entry, also "." and "..", and no name may be kept: the kernel asks again for each use. The
 * last three names have a zero byte, which no name should have. This file owns what the server
 * answers. The server is a process of its own and ends with its parent.
 */
#ifndef TL_TEST_FUSE_SERVER_H
#define TL_TEST_FUSE_SERVER_H

#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "check.h"

#define FUSE_FILES 6
#define FUSE_STREAM 1u		/* the directory's file has no position (FOPEN_STREAM) */
#define FUSE_ENDLESS 2u		/* each entry is "." */
#define FUSE_ANSWER_BYTES 4096

static unsigned int fuse_flags;
/* The bytes of entries that the kernel last asked for; the server writes it. */
static uint32_t *fuse_asked_bytes;

struct fuse_answer {
	struct fuse_out_header head;
	char body[FUSE_ANSWER_BYTES];
};

static inline void fuse_attributes(uint64_t node, struct fuse_attr *attr)
{
	*attr = (struct fuse_attr){
		.ino = node, .size = node * 100, .nlink = 1, .blksize = 4096, .mtime = 5,
		.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0644,
	};
}

/* The entry at `at` of the directory. Returns its bytes, 0 behind the last one. */
static inline size_t fuse_entry(uint64_t at, struct fuse_dirent *entry)
{
	static const char zeros[3][9] = { "file-5\0x", "\0file-6", "..\0file7" };

	entry->off = at + 1;
	if (fuse_flags & FUSE_ENDLESS)
		at = 0;
	if (at >= FUSE_FILES + 2)
		return 0;
	entry->ino = at < 2 ? FUSE_ROOT_ID : at;
	entry->type = (at < 2 ? S_IFDIR : S_IFREG) >> 12;
	if (at >= FUSE_FILES - 1) {
		entry->namelen = 8;
		memcpy(entry->name, zeros[at - (FUSE_FILES - 1)], 8);
	} else if (at < 2)
		entry->namelen = (uint32_t)sprintf(entry->name, "%s", at ? ".." : ".");
	else
		entry->namelen = (uint32_t)sprintf(entry->name, "file-%d", (int)at);
	return FUSE_DIRENT_SIZE(entry);
}

/* The file of a name, whose entry is at that place. */
static inline int fuse_look_up(const char *name, struct fuse_entry_out *out)
{
	for (uint64_t at = 2; at < FUSE_FILES + 2; at++) {
		char text[16];

		sprintf(text, "file-%d", (int)at);
		if (strcmp(text, name))
			continue;
		out->nodeid = at;
		fuse_attributes(at, &out->attr);
		return 0;
	}
	return -ENOENT;
}

/* Returns the bytes of the answer's body, or -errno. */
static inline int fuse_answer(const struct fuse_in_header *head, const void *body, void *out)
{
	switch (head->opcode) {
	case FUSE_INIT:
		*(struct fuse_init_out *)out = (struct fuse_init_out){
			.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096,
		};
		return sizeof(struct fuse_init_out);
	case FUSE_GETATTR:
		fuse_attributes(head->nodeid, &((struct fuse_attr_out *)out)->attr);
		return sizeof(struct fuse_attr_out);
	case FUSE_LOOKUP:
		return fuse_look_up(body, out) ?: (int)sizeof(struct fuse_entry_out);
	case FUSE_OPENDIR:
		if (fuse_flags & FUSE_STREAM)
			((struct fuse_open_out *)out)->open_flags = FOPEN_STREAM;
		return sizeof(struct fuse_open_out);
	case FUSE_READDIR:
		*fuse_asked_bytes = ((const struct fuse_read_in *)body)->size;
		return (int)fuse_entry(((const struct fuse_read_in *)body)->offset, out);
	case FUSE_RELEASEDIR:
		return 0;
	default:
		return -ENOSYS;
	}
}

static inline void fuse_serve(int fd)
{
	static char request[FUSE_MIN_READ_BUFFER];
	const struct fuse_in_header *head = (const void *)request;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(fd, request, sizeof(request)) > 0) {
		struct fuse_answer answer = { .head.unique = head->unique };
		int n;

		if (head->opcode == FUSE_FORGET || head->opcode == FUSE_INTERRUPT)
			continue;
		n = fuse_answer(head, head + 1, answer.body);
		answer.head.error = n < 0 ? n : 0;
		answer.head.len = (uint32_t)sizeof(answer.head) + (n > 0 ? (uint32_t)n : 0);
		if (write(fd, &answer, answer.head.len) < 0 && errno != ENOENT)
			break;
	}
	_exit(0);
}

/* Mounts the file system at a new directory. Returns false where the kernel has no FUSE. */
static inline bool fuse_mount(const char *place, unsigned int flags)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char options[100];

	if (fd < 0)
		return false;
	fuse_asked_bytes = MUST(mmap(NULL, sizeof(*fuse_asked_bytes), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	MUST(mkdir(place, 0755));
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	MUST(mount("none", place, "fuse", 0, options));
	fuse_flags = flags;
	if (MUST(fork()) == 0)
		fuse_serve(fd);
	MUST(close(fd));
	return true;
}

#endif /* TL_TEST_FUSE_SERVER_H */
