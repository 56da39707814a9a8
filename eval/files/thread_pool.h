/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A pool of threads as libuv, tokio and concurrent.futures have it: a queue under a lock, a
 * condition on which threads sleep, and a descriptor that wakes the loop when the first job of a
 * round is done. It owns the threads and the queue.
 */
#ifndef EVAL_FILES_POOL_H
#define EVAL_FILES_POOL_H

#include "file_jobs.h"

#define POOL_THREADS 4	/* as many as libuv has */

/* Several ways may have it open; it has its threads once. */
void pool_open(void);
/*
 * Has n jobs done, at most `tasks` at once. With `each_call` every system call is a hop to a
 * thread, as in aiofiles, fs.promises and tokio's File; otherwise a whole job is, as in
 * tokio::fs::read() and asyncio.to_thread().
 */
void pool_run(struct job *jobs, unsigned int n, unsigned int tasks, bool each_call);
void pool_close(void);

#endif /* EVAL_FILES_POOL_H */
