// SPDX-License-Identifier: GPL-2.0-only
/* A filter that asks a supervisor: it sees the batched call and its arguments, and answers it. */
#include <sys/ioctl.h>

#include "filter.h"
#include "ring.h"

static int listener = -1;

static void *supervise(void *arg)
{
	struct seccomp_notif call;
	struct seccomp_notif_resp answer;
	int fd;

	(void)arg;
	while ((fd = __atomic_load_n(&listener, __ATOMIC_ACQUIRE)) < 0)
		sched_yield();
	for (int i = 0; i < 3; i++) {
		memset(&call, 0, sizeof(call));
		MUST(ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &call));
		CHECK_EQ(call.data.nr, SYS_getpgid);
		CHECK_EQ(call.data.arch, FILTER_ARCH);
		memset(&answer, 0, sizeof(answer));
		answer.id = call.id;
		if (call.data.args[0] == 1)
			answer.val = 4242;
		else if (call.data.args[0] == 2)
			answer.error = -EXDEV;
		else
			answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		MUST(ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &answer));
	}
	return NULL;
}

int main(void)
{
	const pid_t group = getpgrp();	/* which may itself be a getpgid */
	struct ring ring = ring_open(4);
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, supervise, NULL), 0);
	__atomic_store_n(&listener,
			 filter_install(SYS_getpgid, FILTER_ANY_ARGUMENT, SECCOMP_RET_USER_NOTIF,
					SECCOMP_FILTER_FLAG_NEW_LISTENER),
			 __ATOMIC_RELEASE);
	ring_put(&ring, 0, SYS_getpgid, 1);
	ring_put(&ring, 1, SYS_getpgid, 2);
	ring_put(&ring, 2, SYS_getpgid, 0);
	ring_put(&ring, 3, SYS_getpid);
	CHECK_EQ(ring_batch(&ring, 0, 4), 4);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_DONE(&ring, 0, 4242);
	CHECK_DONE(&ring, 1, -EXDEV);
	CHECK_DONE(&ring, 2, group);
	CHECK_DONE(&ring, 3, getpid());
	return 0;
}
