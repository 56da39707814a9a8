// SPDX-License-Identifier: GPL-2.0-only
/*
 * See crew.h. The library does not tell which threads are its workers: lists of the process's
 * threads before and after show them.
 */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "crew.h"
#include "measure.h"

#define THREADS_MAX (4 * WORKERS_MAX)	/* of the whole process, io_uring's among them */

static unsigned int list_threads(pid_t *tids, unsigned int limit)
{
	DIR *directory = opendir("/proc/self/task");
	unsigned int count = 0;
	struct dirent *entry;

	if (!directory)
		measure_fail("/proc/self/task: %s", strerror(errno));
	while ((entry = readdir(directory))) {
		if (entry->d_name[0] == '.')
			continue;
		if (count == limit)
			measure_fail("more than %u threads", limit);
		tids[count++] = (pid_t)atoi(entry->d_name);
	}
	closedir(directory);
	return count;
}

static bool among(pid_t tid, const pid_t *tids, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		if (tids[i] == tid)
			return true;
	return false;
}

/* Starts workers by the library's own call and finds out which threads they are. */
void crew_open(struct crew *crew, unsigned int entries, unsigned int workers, unsigned int spin_us,
	       unsigned int flags)
{
	pid_t before[THREADS_MAX], after[THREADS_MAX];
	unsigned int old = list_threads(before, THREADS_MAX), count, found = 0;
	int error = tl_psc_create(&crew->psc, entries, spin_us, flags);

	if (!error)
		error = tl_psc_start(crew->psc, workers);
	if (error)
		measure_fail("parallel calls with %u workers: %s", workers, strerror(-error));
	crew->workers = workers;
	count = list_threads(after, THREADS_MAX);
	for (unsigned int i = 0; i < count; i++)
		if (!among(after[i], before, old) && found < workers)
			crew->tids[found++] = after[i];
	if (found != workers)
		measure_fail("%u workers asked for, %u threads appeared", workers, found);
}

void crew_place(struct crew *crew, int cpu, bool idle)
{
	const struct sched_param none = { 0 };

	for (unsigned int w = 0; w < crew->workers; w++) {
		if (cpu >= 0) {
			cpu_set_t set;

			CPU_ZERO(&set);
			CPU_SET(cpu, &set);
			if (sched_setaffinity(crew->tids[w], sizeof(set), &set))
				measure_fail("worker on CPU %d: %s", cpu, strerror(errno));
		}
		if (idle && sched_setscheduler(crew->tids[w], SCHED_IDLE, &none))
			measure_fail("worker under SCHED_IDLE: %s", strerror(errno));
	}
}

void crew_close(struct crew *crew)
{
	tl_psc_destroy(crew->psc);
}
