// SPDX-License-Identifier: GPL-2.0-only
/*
 * See thread_pool.h.
 */
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "measure.h"
#include "thread_pool.h"

struct queue {
	struct job *first, **last;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
/* All under the lock. */
static struct queue wanted, done;
static unsigned int idle;
static bool each_call_is_a_hop, ends;

static pthread_t threads[POOL_THREADS];
static int wake = -1;
static unsigned int users;	/* ways that have the pool open */

static void append(struct queue *queue, struct job *job)
{
	job->next = NULL;
	*queue->last = job;
	queue->last = &job->next;
}

static struct job *take_all(struct queue *queue)
{
	struct job *first = queue->first;

	queue->first = NULL;
	queue->last = &queue->first;
	return first;
}

static struct job *take(struct queue *queue)
{
	struct job *job = queue->first;

	queue->first = job->next;
	if (!queue->first)
		queue->last = &queue->first;
	return job;
}

static void complete(struct job *job)
{
	const uint64_t one = 1;
	bool first;

	pthread_mutex_lock(&lock);
	first = !done.first;
	append(&done, job);
	pthread_mutex_unlock(&lock);
	if (first && write(wake, &one, sizeof(one)) != sizeof(one))
		measure_fail("the pool cannot wake the loop");
}

static void *thread(void *nothing)
{
	struct job *job;

	for (;;) {
		pthread_mutex_lock(&lock);
		while (!wanted.first && !ends) {
			idle++;
			pthread_cond_wait(&work, &lock);
			idle--;
		}
		if (!wanted.first) {
			pthread_mutex_unlock(&lock);
			return nothing;
		}
		job = take(&wanted);
		pthread_mutex_unlock(&lock);
		while (job_call(job) && !each_call_is_a_hop)
			;
		complete(job);
	}
}

static void submit(struct job *job)
{
	pthread_mutex_lock(&lock);
	append(&wanted, job);
	if (idle)
		pthread_cond_signal(&work);
	pthread_mutex_unlock(&lock);
}

static struct job *await(void)
{
	struct pollfd readable = { .fd = wake, .events = POLLIN };
	struct job *first;
	uint64_t number;

	if (poll(&readable, 1, -1) != 1 || read(wake, &number, sizeof(number)) != sizeof(number))
		measure_fail("the loop is not woken");
	pthread_mutex_lock(&lock);
	first = take_all(&done);
	pthread_mutex_unlock(&lock);
	return first;
}

void pool_run(struct job *jobs, unsigned int n, unsigned int tasks, bool each_call)
{
	unsigned int begun = 0, ended = 0;

	each_call_is_a_hop = each_call;
	while (begun < n && begun < tasks)
		submit(&jobs[begun++]);
	while (ended < n) {
		struct job *job, *next;

		for (job = await(); job; job = next) {
			next = job->next;
			if (!job->complete) {
				submit(job);
				continue;
			}
			ended++;
			if (begun < n)
				submit(&jobs[begun++]);
		}
	}
}

void pool_open(void)
{
	if (users++)
		return;
	take_all(&wanted);
	take_all(&done);
	ends = false;
	wake = eventfd(0, EFD_CLOEXEC);
	for (unsigned int i = 0; i < POOL_THREADS; i++)
		if (wake < 0 || pthread_create(&threads[i], NULL, thread, NULL))
			measure_fail("cannot start the pool");
}

void pool_close(void)
{
	if (--users)
		return;
	pthread_mutex_lock(&lock);
	ends = true;
	pthread_cond_broadcast(&work);
	pthread_mutex_unlock(&lock);
	for (unsigned int i = 0; i < POOL_THREADS; i++)
		pthread_join(threads[i], NULL);
	close(wake);
}
