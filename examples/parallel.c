// SPDX-License-Identifier: MIT
/*
 * Makes a slow call that does not block the requester. Workers serve a read that waits for its
 * data, while the program computes and makes other calls through the same ring.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <trapless.h>

#define SLOW_MS 300

static int pipes[2];

/* The slow device: its data comes after SLOW_MS. */
static void *device(void *arg)
{
	const struct timespec delay = { .tv_nsec = SLOW_MS * 1000000L };

	(void)arg;
	nanosleep(&delay, NULL);
	return write(pipes[1], "data", 4) == 4 ? NULL : arg;
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/*
 * What the requester does meanwhile: 64 calls at a time, until the slow one is complete. A slot
 * that is an error gives this error as its result.
 */
static long work_until_read(struct tl_psc *psc, int slow, int64_t *result)
{
	int slots[64], done, error = 0;
	long calls = 0;

	/* At most one unfinished: the slow one, or, when that is complete, one of the quick. */
	while (!(done = tl_psc_result(psc, (unsigned int)slow, result)) && error >= 0) {
		int64_t pid;

		for (int i = 0; i < 64; i++)
			slots[i] = TL_PSC_ADD(psc, SYS_getpid);
		error = tl_psc_wait(psc, 1);
		for (int i = 0; i < 64 && error >= 0; i++) {
			while (!(error = tl_psc_result(psc, (unsigned int)slots[i], &pid)))
				tl_psc_wait(psc, 0);
			calls += error == 1 && pid == getpid();
		}
	}
	return done < 0 ? done : error < 0 ? error : calls;
}

int main(void)
{
	long start_ms = now_ms(), asked_ms;
	long calls;
	struct tl_psc *psc;
	pthread_t thread;
	char text[8] = "";
	int64_t result = 0;
	int slow, error;

	error = tl_psc_create(&psc, 128, 50, 0);
	if (!error)
		error = tl_psc_start(psc, 2);
	if (!error && pipe(pipes))
		error = -errno;
	if (!error)
		error = -pthread_create(&thread, NULL, device, NULL);
	if (error) {
		fprintf(stderr, "parallel: cannot start: %s\n", strerror(-error));
		return 1;
	}
	slow = TL_PSC_ADD(psc, SYS_read, pipes[0], text, sizeof(text));
	tl_psc_notify(psc);
	asked_ms = now_ms() - start_ms;
	calls = work_until_read(psc, slow, &result);
	if (calls < 0) {
		fprintf(stderr, "parallel: %s\n", strerror((int)-calls));
		return 1;
	}
	printf("workers: %s\n", tl_psc_backend(psc) ? "in the module" : "ordinary threads");
	printf("the read was asked for after %ld ms and gave \"%s\" (%ld) after %ld ms\n", asked_ms,
	       text, (long)result, now_ms() - start_ms);
	printf("meanwhile %ld other calls were made\n", calls);
	pthread_join(thread, NULL);
	tl_psc_destroy(psc);
	return 0;
}
