/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * twin.h - what the two twins of examples/http share that is no mechanism: the command line, the
 * listening socket, and the same bounds as in examples/http/server.c.
 */
#ifndef EVAL_HTTP_TWIN_H
#define EVAL_HTTP_TWIN_H

#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 1000u
#define REQUEST_LIMIT_S 10	/* a request has to be complete, or an answer to get on, by then */
#define SENDFILE_MAX (1u << 20)	/* bytes of a file sent by one call */

static int root, listener, signals;

/* Opens the folder, the port and the signals that end the server. */
static inline void twin_open(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int on = 1;
	sigset_t set;

	if (argc != 3)
		errx(2, "usage: %s PORT FOLDER", argv[0]);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	address.sin_port = htons((uint16_t)atoi(argv[1]));
	root = open(argv[2], O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		err(1, "%s", argv[2]);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 511))
		err(1, "port %s", argv[1]);
	signal(SIGPIPE, SIG_IGN); /* of sendfile(2), which has no flag against it */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (signals < 0)
		err(1, "signalfd");
}

#endif /* EVAL_HTTP_TWIN_H */
