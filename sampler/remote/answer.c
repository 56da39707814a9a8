// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Answers peek's requests for memory, out of a source that takes a connection. It owns the batches:
 * all requests that have arrived are read at the same time. wire.h has the messages. It ends with
 * its input, and when the source is gone.
 */
#include "answer.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "source.h"
#include "wire.h"

#define PLACES_MAX 256
#define BATCH_BYTES_MAX (4u << 20)

static uint8_t data[BATCH_BYTES_MAX];

static bool has_more(void)
{
	struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };

	return poll(&input, 1, 0) > 0 && input.revents & POLLIN;
}

/* Takes the next request: 0, -EAGAIN for a message that asks nothing, or -EPROTO. */
static int take_request(struct place *asked)
{
	struct message message;

	take(&message, sizeof(message));
	if (message.kind == ALIVE && !message.length)
		return -EAGAIN;
	if (message.kind != READ || message.length != sizeof(*asked))
		return -EPROTO;
	take(asked, sizeof(*asked));
	return asked->length <= READ_BYTES_MAX ? 0 : -EPROTO;
}

static int answer_batch(struct source *source, struct source_place *place, size_t places)
{
	int status = source->kind->read_together(source, place, places);
	size_t i;

	for (i = 0; i < places && !status; i++) {
		uint32_t error = (uint32_t)-place[i].status;

		if (error)
			say(FAILED, &error, sizeof(error));
		else
			say(DATA, place[i].into, place[i].length);
	}
	return status;
}

/* Takes the requests that are there, the first of which is waited for, and answers them. */
static int serve(struct source *source)
{
	struct source_place place[PLACES_MAX];
	size_t places = 0, bytes = 0;

	do {
		struct place asked;
		int status = take_request(&asked);

		if (status == -EAGAIN)
			continue;
		if (status)
			return status;
		place[places++] = (struct source_place){ asked.offset, data + bytes,
							 asked.length, 0 };
		bytes += asked.length;
	} while (places < PLACES_MAX && bytes <= BATCH_BYTES_MAX - READ_BYTES_MAX && has_more());
	return places ? answer_batch(source, place, places) : 0;
}

int answer_requests(struct source *source)
{
	char *lines = source->kind->describe(source);
	int status = lines ? 0 : -ENOMEM;

	if (!status)
		say(HELLO, lines, strlen(lines));
	free(lines);
	while (!status) {
		struct pollfd ready[] = {
			{ .fd = STDIN_FILENO, .events = POLLIN },
			{ .fd = source->kind->events(source), .events = POLLIN },
		};

		if (poll(ready, 2, -1) < 0)
			return -errno;
		if (ready[1].revents)
			status = source_check(source);
		if (!status && ready[0].revents)
			status = serve(source);
	}
	return status;
}
