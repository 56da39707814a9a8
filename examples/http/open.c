// SPDX-License-Identifier: MIT
/*
 * See open.h.
 */
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "open.h"

int root, listener, signals, timer;

void open_all(in_addr_t host, const char *port, const char *folder)
{
	const struct itimerspec second = { { 1, 0 }, { 1, 0 } };
	struct sockaddr_in address = { .sin_family = AF_INET };
	int on = 1;
	sigset_t set;

	address.sin_addr.s_addr = htonl(host);
	address.sin_port = htons((uint16_t)atoi(port));
	root = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		err(1, "%s", folder);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 511))
		err(1, "port %s", port);
	signal(SIGPIPE, SIG_IGN); /* of sendfile(2), which has no flag against it */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (signals < 0)
		err(1, "signalfd");
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (timer < 0 || timerfd_settime(timer, 0, &second, NULL))
		err(1, "timerfd");
}
