/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Jobs of experiment files: a job is one thing that a task asks for, such as "the bytes of this
 * file", as a sequence of system calls. It owns these sequences, the memory of a job, and what the
 * result must be. file_ways.c owns who makes the calls.
 */
#ifndef EVAL_FILES_JOBS_H
#define EVAL_FILES_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define JOB_PATH_BYTES 160
#define JOB_BUFFER_BYTES 4096	/* more than a file has, and than the names in a folder take */
#define JOB_FILE_BYTES 3000
#define JOB_BYTE 'a'
#define JOB_FOLDER_FILES 32	/* in each folder of the tree */

enum work { STAT, READ, WRITE, LIST, WORKS };

struct job {
	enum work work;
	unsigned int step;
	int fd;
	bool complete;
	bool is_right;		/* READ: the bytes have been seen to be those of the file */
	int64_t result;		/* the file's size, the bytes read or written, or -errno */
	struct job *next;	/* in a queue of the pool */
	struct stat status;
	char *buffer;
	char path[JOB_PATH_BYTES];
};

/* The files of a tree: `count` of them, JOB_FOLDER_FILES in each folder, and as many to write. */
struct tree {
	unsigned int count, folders;
	struct job *files, *targets, *top, *names, *entries;
};

/* Makes the tree below `directory`, which exists. */
void tree_make(struct tree *tree, const char *directory, unsigned int count);
/* Removes it. */
void tree_remove(struct tree *tree, const char *directory);
/* Lets jobs begin anew, as `work`. */
void jobs_reset(struct job *jobs, unsigned int n, enum work work);
/* Ends the program unless each of the jobs has the result that it must have. */
void jobs_check(const struct job *jobs, unsigned int n, const char *way);
/* Fills in tree->entries from the names in all folders. Returns their number. */
unsigned int tree_entries(struct tree *tree);

/* Whether these are the bytes of a file, by the first and the last. */
static inline bool job_holds(const char *bytes, int64_t n)
{
	return n == JOB_FILE_BYTES && bytes[0] == JOB_BYTE && bytes[n - 1] == JOB_BYTE;
}

/* Makes the job's next system call. Returns false when the job is complete. */
bool job_call(struct job *job);

#endif /* EVAL_FILES_JOBS_H */
