// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes requests of bytes, and compares replies with bytes: of HTTP the status and the body, of
 * other protocols all bytes. It owns the files with the requests and the expected replies; load.c
 * owns the connections.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "measure.h"
#include "reply.h"

#define FILE_MAX (1u << 22)
#define HEAD_ROOM 16384u
#define OPENING_MAX 16
#define SILENCE_S 60
#define OPENING_ROOM 65536u
#define EXCERPT 60 /* bytes of a wrong reply, for people */
#define LENGTH_FIELD "\r\ncontent-length:"

struct file {
	char *bytes;
	size_t length;
};

static struct {
	const char *path; /* of HTTP; NULL: another protocol */
	struct file request, reply;
	struct step {
		struct file file;
		bool sent; /* else awaited */
	} opening[OPENING_MAX];
	unsigned int steps;
	bool ends; /* the server closes after a reply */
} asked;

static struct file read_file(const char *path)
{
	int descriptor = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;
	struct file file;

	if (descriptor < 0 || fstat(descriptor, &status) < 0 || status.st_size > FILE_MAX)
		measure_fail("%s cannot be read, or is larger than %u bytes", path, FILE_MAX);
	file.length = (size_t)status.st_size;
	file.bytes = malloc(file.length + 1);
	if (!file.bytes || read(descriptor, file.bytes, file.length) != status.st_size)
		measure_fail("%s cannot be read: %m", path);
	close(descriptor);
	return file;
}

bool reply_option(int option, const char *value)
{
	switch (option) {
	case REPLY_HTTP:
		asked.path = value;
		return true;
	case REPLY_BODY:
	case REPLY_EXPECT:
		asked.reply = read_file(value);
		return true;
	case REPLY_SEND:
		asked.request = read_file(value);
		return true;
	case REPLY_OPENING:
	case REPLY_UNTIL:
		if (asked.steps == OPENING_MAX)
			measure_fail("an opening has at most %d steps", OPENING_MAX);
		asked.opening[asked.steps++] = (struct step){ read_file(value),
							      option == REPLY_OPENING };
		return true;
	default:
		return false;
	}
}

bool reply_is_asked(void)
{
	return asked.reply.bytes && !asked.path == !!asked.request.bytes;
}

void reply_prepare(bool once)
{
	if (!asked.path)
		return;
	if (asprintf(&asked.request.bytes, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n",
		     asked.path, once ? "Connection: close\r\n" : "") < 0)
		measure_fail("no memory");
	asked.request.length = strlen(asked.request.bytes);
	asked.ends = once;
}

static bool ends_with(const char *bytes, size_t length, const struct file *end)
{
	return length >= end->length &&
	       !memcmp(bytes + length - end->length, end->bytes, end->length);
}

static void await(int socket, const struct file *end)
{
	const struct timeval limit = { .tv_sec = SILENCE_S };
	char words[OPENING_ROOM];
	size_t length = 0;

	setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	while (!ends_with(words, length, end)) {
		ssize_t more = read(socket, words + length, sizeof(words) - length);

		if (more <= 0)
			measure_fail("the server's part of the opening ended, or did not go on, "
				     "after %zu bytes that are not what was awaited", length);
		length += (size_t)more;
	}
}

static void send_all(int socket, const struct file *file)
{
	if (send(socket, file->bytes, file->length, MSG_NOSIGNAL) != (ssize_t)file->length)
		measure_fail("a request cannot be sent: %m");
}

void reply_open(int socket)
{
	unsigned int i;

	for (i = 0; i < asked.steps; i++)
		if (asked.opening[i].sent)
			send_all(socket, &asked.opening[i].file);
		else
			await(socket, &asked.opening[i].file);
}

void reply_begin(struct reply *reply)
{
	if (!reply->bytes)
		reply->bytes = malloc(HEAD_ROOM + asked.reply.length);
	if (!reply->bytes)
		measure_fail("no memory");
	reply->length = reply->head = 0;
}

void reply_ask(int socket)
{
	send_all(socket, &asked.request);
}

static void __attribute__((noreturn)) fail_wrong(const struct reply *reply)
{
	char begin[EXCERPT + 1];
	size_t i, length = reply->length < EXCERPT ? reply->length : EXCERPT;

	for (i = 0; i < length; i++) {
		char one = reply->bytes[i];

		begin[i] = one >= ' ' && one <= '~' && one != '"' && one != '\\' ? one : '.';
	}
	begin[length] = '\0';
	measure_fail("a reply of %zu bytes is not the right one; it begins with '%s'",
		     reply->length, begin);
}

/* Finds the end of the head of HTTP, and checks what stands in it. */
static void take_head(struct reply *reply)
{
	char *end = memmem(reply->bytes, reply->length, "\r\n\r\n", 4), *field;

	if (!end)
		return;
	reply->head = (size_t)(end - reply->bytes) + 4;
	*end = '\0';
	field = strcasestr(reply->bytes, LENGTH_FIELD);
	if (strncmp(reply->bytes, "HTTP/1.1 200", 12) || !field ||
	    strtoul(field + strlen(LENGTH_FIELD), NULL, 10) != asked.reply.length)
		fail_wrong(reply);
	*end = '\r';
}

/* Whether all bytes of the reply are there; they are the right ones then. */
static bool is_whole(struct reply *reply)
{
	if (asked.path && !reply->head)
		take_head(reply);
	if ((asked.path && !reply->head) || reply->length < reply->head + asked.reply.length)
		return false;
	if (reply->length > reply->head + asked.reply.length ||
	    memcmp(reply->bytes + reply->head, asked.reply.bytes, asked.reply.length))
		fail_wrong(reply);
	return true;
}

enum reply_state reply_take(struct reply *reply, int socket)
{
	size_t room = HEAD_ROOM + asked.reply.length;
	enum reply_state state = REPLY_NOTHING;

	for (;;) {
		ssize_t more = read(socket, reply->bytes + reply->length, room - reply->length);

		if (more < 0 && errno == EAGAIN)
			return state;
		if (more <= 0)
			return asked.ends && is_whole(reply) ? REPLY_WHOLE : REPLY_ENDED;
		reply->length += (size_t)more;
		state = REPLY_PART;
		if (is_whole(reply) && !asked.ends)
			return REPLY_WHOLE;
		if (reply->length == room)
			fail_wrong(reply);
	}
}
