/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * Shared by the files of the engine: an operation and its life. files.c owns the engine, its
 * workers and its queues; operation.c owns how an operation begins and its memory; sequence.c owns
 * what an operation of several calls does next.
 */
#ifndef TRAPLESS_LIB_FILES_H
#define TRAPLESS_LIB_FILES_H

#include "../psc/psc_state.h"

#include <trapless_files.h>

#define OP_REQUESTS 10u
#define OP_NAME_BYTES 200u	/* of strings that need no allocation */
#define OP_PROBE_BYTES 4096u	/* behind the room, for what is read to see the file's end */

enum op_state {
	OP_FREE,
	OP_QUEUED,	/* no slot was free yet */
	OP_MADE,	/* in the ring */
	OP_COMPLETE,	/* tl_files_next() is to return it */
	OP_TAKEN,	/* it has; tl_files_release() is to come */
};

/* What follows when the requests of an operation are complete. Returns true at its end. */
typedef bool (*op_advance)(struct tl_files_op *op);

struct tl_files_op {
	struct tl_files_op *next, *previous;	/* in the list of its state */
	enum op_state state;
	bool canceled;
	bool tidies;			/* its one call closes or removes what it leaves behind */
	uint64_t user_data;
	int64_t result;
	op_advance advance;		/* NULL: the result is that of the one call */
	struct tl_request requests[OP_REQUESTS];
	struct tl_request *program;	/* `requests`, or memory of malloc() with the strings */
	uint32_t n;			/* requests; 1 is no program */
	uint32_t slot;			/* of the ring, in OP_MADE */
	/* Only for sequences. */
	int fd;				/* open between two requests, or -1 */
	uint32_t nr;			/* SYS_read or SYS_getdents64 */
	uint64_t done;			/* bytes read or written */
	uint64_t room;			/* bytes of data */
	char *data;
	const char *source;		/* what is written */
	uint64_t bytes;			/* of source */
	int64_t error;			/* that an operation with something to tidy up will have */
	unsigned int flags;
	const char *path;
	const char *temporary;		/* a file that is to replace `path`, or NULL */
	const char *folder;		/* of a replacement that is to be durable, or NULL */
	int dirfd;
	void *strings;			/* of malloc() if they do not fit into `name` */
	char name[OP_NAME_BYTES];
	uint64_t attributes[18];	/* room for struct stat */
};

/* A list in the order of adding. */
struct op_list {
	struct tl_files_op *first, *last;
};

struct tl_files {
	struct tl_psc *psc;
	struct op_list queued;		/* no slot is free for them yet */
	struct op_list made;		/* in the ring */
	struct op_list complete;	/* tl_files_next() is to return them */
	struct op_list taken;
	struct op_list unused;
	unsigned int unused_n;
	unsigned int pending;
	unsigned int added;		/* to the ring since the last notify */
	uint32_t references;		/* futex: threads, and one for the caller */
};

/* Whether the engine belongs to another process: this one is the child of a fork. */
static inline bool tl_files_is_foreign(const struct tl_files *files)
{
	return !files->psc->entries;
}

/* Removes the operation from a list, and returns it. */
struct tl_files_op *tl_op_detach(struct op_list *list, struct tl_files_op *op);
void tl_op_append(struct op_list *list, struct tl_files_op *op, enum op_state state);
void tl_op_prepend(struct op_list *list, struct tl_files_op *op, enum op_state state);
/* Puts the operation's requests into the ring, or into the queue for it. */
void tl_op_add(struct tl_files *files, struct tl_files_op *op);
/* Fill in the first requests of an operation that has its paths and, to read, its memory. */
void tl_sequence_read(struct tl_files_op *op);
void tl_sequence_write(struct tl_files_op *op, int open_flags, mode_t mode);
/* Many independent calls: fills in n requests, whose paths follow them. */
void tl_sequence_stat(struct tl_files_op *op, const char *const *paths, int flags,
		      unsigned int mask);
/* The next and last request closes the descriptor; then the result is `error`. Returns false. */
bool tl_sequence_close(struct tl_files_op *op, int64_t error);

#endif /* TRAPLESS_LIB_FILES_H */
