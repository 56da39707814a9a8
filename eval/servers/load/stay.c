// SPDX-License-Identifier: GPL-2.0-only
/*
 * Keeps a load's connections from one run to the next: one process opens them and stays, and
 * another one asks it by a Unix socket for each run, so that a run contains neither the beginning
 * of connections nor their end. It owns that socket. If the process that stays has failed, the one
 * that asks finds the connection closed, and fails.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "measure.h"
#include "stay.h"

#define EARLY ".early" /* ends the name of a socket that does not listen yet */

static int stay_socket(const char *path, struct sockaddr_un *address)
{
	int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (file < 0 || strlen(path) >= sizeof(address->sun_path))
		measure_fail("no socket %s: too long a path, or %m", path);
	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	strcpy(address->sun_path, path);
	return file;
}

/*
 * Listens at the address. Its file appears when it can be connected to: between bind() and
 * listen() whoever waits for the file would be refused.
 */
static void listen_at(int listening, const struct sockaddr_un *address)
{
	struct sockaddr_un early = *address;
	size_t length = strlen(early.sun_path);

	if (length + strlen(EARLY) >= sizeof(early.sun_path))
		measure_fail("%s: too long for the address of a socket", address->sun_path);
	strcpy(early.sun_path + length, EARLY);
	if (bind(listening, (struct sockaddr *)&early, sizeof(early)) < 0 ||
	    listen(listening, 1) < 0 || rename(early.sun_path, address->sun_path) < 0)
		measure_fail("%s: %m", early.sun_path);
}

void stay(const char *path, uint64_t (*run)(void))
{
	struct sockaddr_un address;
	int listening = stay_socket(path, &address);

	listen_at(listening, &address);
	for (;;) {
		int asking = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
		uint64_t replies;

		if (asking < 0)
			measure_fail("%s: %m", path);
		replies = run();
		if (send(asking, &replies, sizeof(replies), MSG_NOSIGNAL) != sizeof(replies))
			measure_fail("%s: who asked has gone", path);
		close(asking);
	}
}

uint64_t stay_ask(const char *path)
{
	struct sockaddr_un address;
	int file = stay_socket(path, &address);
	uint64_t replies;

	if (connect(file, (struct sockaddr *)&address, sizeof(address)) < 0)
		measure_fail("%s: no load stays there: %m", path);
	if (recv(file, &replies, sizeof(replies), MSG_WAITALL) != sizeof(replies))
		measure_fail("%s: the load that stayed there has failed", path);
	close(file);
	return replies;
}
