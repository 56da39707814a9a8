/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The mechanisms and subjects that experiment programs compares: mechanisms are opened once, and
 * each subject is a row of functions. It owns the types. chains.c, endless_loops.c and burst.c have
 * the subjects, bench.c opens and closes, programs.c measures.
 */
#ifndef EVAL_BENCH_H
#define EVAL_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <liburing.h>
#include <trapless.h>

#include "bpf_loop.h"
#include "kmod/array.h"
#include "measure.h"

#define FILES_MAX 64u		/* the largest N */
#define FILE_ROOM 1024u		/* bytes; each file is smaller */
#define NAME_BYTES 64
#define COPY_BYTES (1u << 20)
#define COPY_STEP_MAX (1u << 16)
#define CONNECTIONS_MAX 64u
#define BURST_REQUESTS 32u

#define RING_ENTRIES (4 * FILES_MAX)	/* four requests a file */
#define ARRAY_A_FILE 8u			/* the same calls and four copies of words */

enum mechanism {
	PLAIN,		/* one trap a call */
	BATCH,		/* libtrapless; what a call needs of another costs a flush */
	PROGRAM,	/* libtrapless, TL_RESULT() and TL_WORD64() */
	C_BLAKE,	/* an array of calls as c-blake/batch makes them, by kmod/array.c */
	URING,		/* links and direct descriptors */
	URING_STATX,	/* the same, and the size of each file */
	URING_BPF,	/* a program of BPF queues the requests, in io_uring's loop */
	PSC,		/* workers */
	MECHANISMS
};

enum subject { FILE_CHAIN, GETPPID, COPY, ACCEPT, BURST, SUBJECTS };

struct bench {
	/* The mechanisms. */
	struct tl_batch *batch;
	struct io_uring uring;
	struct bpf_loop bpf_loop;
	int array_fd;
	struct array_call array_calls[ARRAY_A_FILE * FILES_MAX];
	long array_results[ARRAY_A_FILE * FILES_MAX];
	bool open[MECHANISMS];
	char reason[MECHANISMS][MEASURE_REASON_CHARS];	/* why a mechanism is not open */
	/* FILE_CHAIN */
	int directory;		/* in which the names are */
	char names[FILES_MAX][NAME_BYTES];
	long sizes[FILES_MAX];
	struct stat stats[FILES_MAX];
	struct statx statxs[FILES_MAX];
	char buffers[FILES_MAX][FILE_ROOM] __attribute__((aligned(64)));
	/* GETPPID */
	long parent;
	/* COPY */
	int from, to;
	char block[COPY_STEP_MAX] __attribute__((aligned(4096)));
	/* ACCEPT */
	int listener, clients[CONNECTIONS_MAX];
	int64_t accepted[CONNECTIONS_MAX + 1], *cursor;
	/* BURST */
	struct tl_psc *psc;
	unsigned int workers;
};

/* One measured run: what it is given, and what it finds. */
struct run {
	struct bench *bench;
	unsigned int n;		/* files, calls, connections or workers; of COPY, KiB a step */
	unsigned long bad;	/* not 0: a result differed from what it must be */
	unsigned int crossings, calls;	/* where no mechanism of the kernel counts them */
};

typedef void (*runner)(void *run);

struct subject_row {
	const char *name;
	void (*create)(struct bench *bench, const char *directory);	/* once */
	void (*prepare)(struct bench *bench, unsigned int n);	/* before each run, not measured */
	void (*check)(struct bench *bench, unsigned int n, const char *mechanism);
	unsigned int (*operations)(unsigned int n);	/* that one run makes */
	bool fixed;			/* its sizes are not those that were asked for */
	unsigned int sizes[3];		/* those that it has then; 0 ends them */
	runner runners[MECHANISMS];
};

extern const struct subject_row file_row, getppid_row, copy_row, accept_row, burst_row;

const char *mechanism_name(enum mechanism mechanism);
/* Opens those whose names are in the list; one that cannot be had keeps its reason. */
void bench_open(struct bench *bench, const char *wanted);
void bench_close(struct bench *bench);
/* The kernel's counts; false for mechanisms that have none. */
bool bench_stats(struct bench *bench, enum mechanism mechanism, struct tl_stats *stats);

#endif /* EVAL_BENCH_H */
