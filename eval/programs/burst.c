// SPDX-License-Identifier: GPL-2.0-only
/*
 * The subject of workers: 32 short calls are notified at once while all workers sleep, on one CPU.
 * It owns the workers and the end of a burst, which is when all of them sleep again: a worker that
 * is woken in vain costs as much as one that serves.
 */
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "workload_clock.h"
#include "measure.h"

#define SETTLE_MS 3	/* until every worker sleeps */
#define YIELDS 4	/* after a burst: each lets the workers run that are still awake */

static void create_workers(struct bench *bench, const char *directory)
{
	(void)directory;
	bench->parent = getppid();
}

/* Starts as many workers as this run is to have, and lets them fall asleep. */
static void prepare_workers(struct bench *bench, unsigned int n)
{
	int error = 0;

	if (bench->workers != n) {
		tl_psc_destroy(bench->psc);
		bench->psc = NULL;
		error = tl_psc_create(&bench->psc, BURST_REQUESTS, 0, TL_MODULE);
		if (!error)
			error = tl_psc_start(bench->psc, n);
		if (error)
			measure_fail("%u workers: %s", n, strerror(-error));
		bench->workers = n;
	}
	sleep_ms(SETTLE_MS);
}

static void check_workers(struct bench *bench, unsigned int n, const char *mechanism)
{
	(void)bench;
	(void)n;
	(void)mechanism;
}

static unsigned int requests_of(unsigned int n)
{
	(void)n;
	return BURST_REQUESTS;
}

static void burst_psc(void *arg)
{
	struct run *run = arg;
	struct tl_psc *psc = run->bench->psc;
	int slots[BURST_REQUESTS], left;

	for (unsigned int i = 0; i < BURST_REQUESTS; i++)
		slots[i] = TL_PSC_ADD(psc, SYS_getppid);
	run->bad |= tl_psc_notify(psc) < 0;
	do
		left = tl_psc_wait(psc, 0);
	while (left == -EINTR);
	run->bad |= (unsigned long)left;
	for (unsigned int i = 0; i < BURST_REQUESTS; i++) {
		int64_t result = 0;

		run->bad |= slots[i] < 0 ||
			    tl_psc_result(psc, (unsigned int)slots[i], &result) != 1;
		run->bad |= (unsigned long)(result ^ run->bench->parent);
	}
	for (unsigned int i = 0; i < YIELDS; i++)
		sched_yield();
}

const struct subject_row burst_row = {
	.name = "burst", .create = create_workers, .prepare = prepare_workers,
	.check = check_workers, .operations = requests_of, .fixed = true, .sizes = { 1, 4, 16 },
	.runners = { [PSC] = burst_psc },
};
