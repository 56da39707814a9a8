/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A filter's listener may answer any number. One that equals a code of restart, or the module's own
 * of refusal, is the request's result, as it is the plain call's; no call was refused.
 */
#include <sys/ioctl.h>

#include "filter.h"
#include "ring.h"

#define FIRST -510
#define LAST -520

static int listener = -1;

static void *supervise(void *arg)
{
	struct seccomp_notif_resp answer;
	struct seccomp_notif call;
	int fd;

	(void)arg;
	while ((fd = __atomic_load_n(&listener, __ATOMIC_ACQUIRE)) < 0)
		sched_yield();
	for (;;) {
		memset(&call, 0, sizeof(call));
		MUST(ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &call));
		memset(&answer, 0, sizeof(answer));
		answer.id = call.id;
		answer.error = (int)call.data.args[0];
		MUST(ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &answer));
	}
	return NULL;
}

/* execve is refused to a batch: what the listener says comes first. */
static void answered(long nr)
{
	struct ring ring = ring_open(4);

	for (int code = FIRST; code >= LAST; code--) {
		long plain = sys(nr, code);

		CHECK_EQ(plain, code);
		ring_put(&ring, 0, nr, code);
		ring_put(&ring, 1, SYS_getpid);
		CHECK_EQ(ring_batch(&ring, 0, 2), 2);
		CHECK_DONE(&ring, 0, plain);
		CHECK_DONE(&ring, 1, getpid());
	}
	CHECK_EQ(ring_stats(&ring).refused, 0);
	CHECK_EQ(ring_stats(&ring).executed, 2 * (FIRST - LAST + 1));
}

static void listen_for(long nr)
{
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, supervise, NULL), 0);
	__atomic_store_n(&listener,
			 filter_install(nr, FILTER_ANY_ARGUMENT, SECCOMP_RET_USER_NOTIF,
					SECCOMP_FILTER_FLAG_NEW_LISTENER),
			 __ATOMIC_RELEASE);
	answered(nr);
}

static void allowed_call(void)
{
	listen_for(SYS_getpgid);
}

static void refused_call(void)
{
	listen_for(SYS_execve);
}

int main(void)
{
	CHECK_EXITED(child_run(allowed_call), 0);
	CHECK_EXITED(child_run(refused_call), 0);
	return 0;
}
