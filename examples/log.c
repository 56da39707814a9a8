// SPDX-License-Identifier: MIT
/*
 * Writes a log with group commit. Many threads append records, and each waits until its own is on
 * the disk. One thread writes all that have come meanwhile and syncs the file, in one crossing: the
 * more threads wait, the more records share a write, a sync and a crossing.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trapless.h>

#define CLIENTS 8
#define RECORD 64		/* bytes at most */
#define GROUP (CLIENTS * RECORD)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t appended = PTHREAD_COND_INITIALIZER, committed = PTHREAD_COND_INITIALIZER;
/* Under the lock: the group that is being filled, its number, and the last one on the disk. */
static char group[GROUP];
static unsigned long bytes, number = 1, on_disk;
static unsigned int running = CLIENTS;
static int records, failure;

/* Appends a record and returns when it is on the disk, or cannot be: 0 or -errno. */
static int append(const char *record)
{
	unsigned long mine;

	pthread_mutex_lock(&lock);
	mine = number;
	memcpy(group + bytes, record, strlen(record));
	bytes += strlen(record);
	pthread_cond_signal(&appended);
	while (on_disk < mine && !failure)
		pthread_cond_wait(&committed, &lock);
	pthread_mutex_unlock(&lock);
	return failure;
}

static void *client(void *arg)
{
	char record[RECORD];

	for (int i = 0; i < records; i++) {
		snprintf(record, sizeof(record), "client %ld record %d\n", (long)arg, i);
		if (append(record))
			break;
	}
	pthread_mutex_lock(&lock);
	running--;
	pthread_cond_signal(&appended);
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* Writes the text and syncs the file, unless the write fails. Returns 0 or -errno. */
static int commit(struct tl_batch *batch, int fd, const char *text, unsigned long left)
{
	while (left) {
		int put = TL_ADD(batch, SYS_write, fd, text, left);
		int sync = TL_ADD(batch, SYS_fdatasync, fd);
		int64_t written;
		int flushed;

		/* Nothing is to be synced if the write fails. A short one is gone on with. */
		tl_batch_jump(batch, put, TL_IF_ERROR, tl_batch_next(batch));
		flushed = tl_batch_flush_all(batch);
		if (flushed < 0)
			return flushed;
		written = tl_batch_result(batch, put);
		if (written < 0)
			return (int)written;
		if (tl_batch_result(batch, sync) < 0)
			return (int)tl_batch_result(batch, sync);
		text += written;
		left -= (unsigned long)written;
	}
	return 0;
}

/* Commits groups until no client runs. Returns how many. */
static unsigned long write_log(struct tl_batch *batch, int fd)
{
	static char text[GROUP];

	pthread_mutex_lock(&lock);
	while (running || bytes) {
		unsigned long length = bytes;
		int error;

		if (!length) {
			pthread_cond_wait(&appended, &lock);
			continue;
		}
		memcpy(text, group, length);
		bytes = 0;
		number++;
		pthread_mutex_unlock(&lock);
		error = commit(batch, fd, text, length);
		pthread_mutex_lock(&lock);
		failure = error ? error : failure;
		on_disk = number - 1;
		pthread_cond_broadcast(&committed);
	}
	pthread_mutex_unlock(&lock);
	return on_disk;
}

int main(int argc, char **argv)
{
	int fd = argc == 3 ? open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666) : -1;
	pthread_t threads[CLIENTS];
	struct tl_batch *batch;
	unsigned long commits;

	if (fd < 0 || tl_batch_create(&batch, 2, 0)) {
		fprintf(stderr, "usage: log FILE RECORDS (of each of %d clients)\n", CLIENTS);
		return 2;
	}
	records = atoi(argv[2]);
	for (long i = 0; i < CLIENTS; i++)
		if (pthread_create(&threads[i], NULL, client, (void *)i))
			return 1;
	commits = write_log(batch, fd);
	for (int i = 0; i < CLIENTS; i++)
		pthread_join(threads[i], NULL);
	if (failure)
		fprintf(stderr, "log: %s: %s\n", argv[1], strerror(-failure));
	else
		printf("%d records, %lu commits\n", CLIENTS * records, commits);
	tl_batch_destroy(batch);
	return failure != 0;
}
