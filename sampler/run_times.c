// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads the run times of threads. It owns the decision which threads are frozen: they do not run
 * although they could.
 *
 * The kernel updates the time of a running thread only with its tick. So a thread counts as frozen
 * when its time has not moved for longer than two of the slowest ticks and it does not sleep. A
 * virtual processor that sleeps is idle, and its memory is up to date.
 */
#include "run_times.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int open_of(pid_t tid, const char *what)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", tid, what);
	return open(path, O_RDONLY | O_CLOEXEC);
}

int threads_open(struct threads *threads, const pid_t *tids, unsigned int count, pid_t *which)
{
	memset(threads, 0, sizeof(*threads));
	for (; threads->count < count; threads->count++) {
		unsigned int i = threads->count;

		threads->statistics[i] = open_of(tids[i], "schedstat");
		threads->state[i] = open_of(tids[i], "stat");
		if (threads->statistics[i] < 0 || threads->state[i] < 0) {
			int status = -errno;

			*which = tids[i];
			threads->count++;
			threads_close(threads);
			return status;
		}
	}
	return 0;
}

void threads_close(struct threads *threads)
{
	while (threads->count--) {
		if (threads->statistics[threads->count] >= 0)
			close(threads->statistics[threads->count]);
		if (threads->state[threads->count] >= 0)
			close(threads->state[threads->count]);
	}
	threads->count = 0;
}

static ssize_t read_text(int descriptor, char *text, size_t bytes)
{
	ssize_t length = pread(descriptor, text, bytes - 1, 0);

	text[length > 0 ? length : 0] = 0;
	return length;
}

/* The letter behind the name, which may itself hold anything; 'X' of a thread that has ended. */
static char state_of(int descriptor)
{
	char text[512];
	const char *end;

	if (read_text(descriptor, text, sizeof(text)) <= 0)
		return 'X';
	end = strrchr(text, ')');
	return end && end[1] == ' ' ? end[2] : 'X';
}

static void update(struct threads *threads, unsigned int i, uint64_t now_ns)
{
	uint64_t bit = 1ull << i, run_ns;
	char text[128], state;

	if (read_text(threads->statistics[i], text, sizeof(text)) <= 0) {
		threads->frozen |= bit;	/* it has ended */
		return;
	}
	run_ns = strtoull(text, NULL, 10);
	if (run_ns != threads->run_ns[i] || !threads->moved_at_ns[i]) {
		threads->run_ns[i] = run_ns;
		threads->moved_at_ns[i] = now_ns;
		threads->frozen &= ~bit;
		return;
	}
	if (now_ns - threads->moved_at_ns[i] < FROZEN_AFTER_NS)
		return;
	state = state_of(threads->state[i]);
	if (state == 'S' || state == 'D' || state == 'I') {
		threads->moved_at_ns[i] = now_ns;	/* its state is asked for again later */
		threads->frozen &= ~bit;
	} else {
		threads->frozen |= bit;
	}
}

void threads_update(struct threads *threads, uint64_t now_ns)
{
	unsigned int i;

	if (threads->asked_at_ns && now_ns - threads->asked_at_ns < RUN_TIME_AGE_NS)
		return;
	threads->asked_at_ns = now_ns;
	for (i = 0; i < threads->count; i++)
		update(threads, i, now_ns);
}
