/* SPDX-License-Identifier: MIT */
/*
 * What a web server opens before its first connection, and the bounds that it keeps. It knows no
 * mechanism, so that servers of any kind can share it.
 */
#ifndef EXAMPLES_HTTP_OPEN_H
#define EXAMPLES_HTTP_OPEN_H

#include <netinet/in.h>

#define CONNECTIONS_MAX 1000u
#define LIMIT_S 10		/* a request has to be there, or an answer to get on, by then */
#define SENDFILE_MAX (1u << 20)	/* bytes of a file sent by one call */

/*
 * Descriptors: the folder, the socket that takes connections, SIGTERM and SIGINT by signalfd(2),
 * and a timer that expires each second.
 */
extern int root, listener, signals, timer;

/* Opens them, or ends the process with an error. address: of the host, in its byte order. */
void open_all(in_addr_t address, const char *port, const char *folder);

#endif /* EXAMPLES_HTTP_OPEN_H */
