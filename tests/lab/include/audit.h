/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sends messages to the kernel's audit, for tests of processes whose calls are recorded. Nobody can
 * switch audit off again for a process; a rule can only spare new processes.
 */
#ifndef TL_TEST_AUDIT_H
#define TL_TEST_AUDIT_H

#include <linux/audit.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include "check.h"

static int audit_fd;

/* Sends one message to the audit subsystem; returns its answer, 0 or -errno. */
static inline int audit_send(uint16_t type, const void *data, size_t size)
{
	struct {
		struct nlmsghdr header;
		char data[2048];
	} message = { .header = {
		.nlmsg_len = (uint32_t)NLMSG_LENGTH(size), .nlmsg_type = type,
		.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK, .nlmsg_seq = 1,
	} };
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	struct nlmsgerr *answer;

	CHECK(size <= sizeof(message.data));
	memcpy(NLMSG_DATA(&message.header), data, size);
	MUST(sendto(audit_fd, &message, message.header.nlmsg_len, 0, (struct sockaddr *)&kernel,
		    sizeof(kernel)));
	do
		MUST(recv(audit_fd, &message, sizeof(message), 0));
	while (message.header.nlmsg_type != NLMSG_ERROR);
	answer = NLMSG_DATA(&message.header);
	return answer->error;
}

#endif /* TL_TEST_AUDIT_H */
