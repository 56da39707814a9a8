// SPDX-License-Identifier: GPL-2.0-or-later
/* Takes and gives messages whole, over standard input and output. It knows no kind of them. */
#include "wire.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

unsigned int silence_limit_s;

void take(void *into, size_t length)
{
	uint8_t *at = into;

	while (length) {
		ssize_t got = read(STDIN_FILENO, at, length);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			exit(0);
		at += got;
		length -= (size_t)got;
		alarm(silence_limit_s);
	}
}

static void give(const void *from, size_t length)
{
	const uint8_t *at = from;

	while (length) {
		ssize_t done = write(STDOUT_FILENO, at, length);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			exit(0);
		at += done;
		length -= (size_t)done;
		alarm(silence_limit_s);
	}
}

void say(enum kind kind, const void *data, size_t length)
{
	struct message message = { .kind = kind, .length = (uint32_t)length };

	give(&message, sizeof(message));
	give(data, length);
}
