// SPDX-License-Identifier: GPL-2.0-only
/* A ring's descriptor that was sent to another process is useless there: entering is -EPERM. */
#include <sys/socket.h>

#include "ring.h"

static int sockets[2];

static void send_descriptor(int fd)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .header = {
		.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET,
		.cmsg_type = SCM_RIGHTS,
	} };
	struct iovec data = { "x", 1 };
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control,
		.msg_controllen = sizeof(control),
	};

	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	CHECK_EQ(MUST(sendmsg(sockets[0], &message, 0)), 1);
}

static void receiver(void)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	char byte;
	struct iovec data = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	int fd;

	CHECK_EQ(MUST(recvmsg(sockets[1], &message, 0)), 1);
	memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
	CHECK_EQ(enter_at(fd, NULL, 1, TL_ENTER_BATCH), -EPERM);
	CHECK_EQ((long)device_map(fd, 8), -EPERM);
}

int main(void)
{
	struct ring ring;
	pid_t pid;

	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	pid = child_start(receiver);
	ring = ring_open(8);	/* after the fork: only the socket carries it over */
	ring_put(&ring, 0, SYS_getpid);
	send_descriptor(ring.fd);
	CHECK_EXITED(child_wait(pid), 0);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
	return 0;
}
