// SPDX-License-Identifier: GPL-2.0-only
/*
 * setuid() and its kin made in supervisor mode have their whole effect at once, in all threads as
 * the C library does it; the process goes on calling, with its new rights and no others.
 */
#include "supervisor.h"

#define STRANGER 1000
#define THREADS 3

static pthread_barrier_t barrier;

static void check_rights(void)
{
	CHECK_EQ(sys(SYS_getuid), STRANGER);
	CHECK_EQ(sys(SYS_geteuid), STRANGER);
	CHECK_EQ(sys(SYS_openat, AT_FDCWD, "secret", O_RDONLY), -EACCES);
	CHECK_EQ(sys(SYS_setuid, 0), -EPERM);
}

static void *thread(void *unused)
{
	(void)unused;
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < 1000; i++)
		check_rights();
	return NULL;
}

static void body(void)
{
	pthread_t threads[THREADS];

	enter_supervisor(0);
	pthread_barrier_init(&barrier, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, thread, NULL), 0);
	pthread_barrier_wait(&barrier);
	CHECK(sys(SYS_openat, AT_FDCWD, "secret", O_RDONLY) >= 0);
	MUST(setgid(STRANGER));
	MUST(setuid(STRANGER));
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < 1000; i++)
		check_rights();
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

int main(void)
{
	supervisor_need();
	close(MUST(open("secret", O_CREAT | O_RDWR, 0600)));
	for (int i = 0; i < 5; i++)
		CHECK_EXITED(child_run(body), 0);
	unlink("secret");
	return 0;
}
