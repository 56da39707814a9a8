// SPDX-License-Identifier: GPL-2.0-only
/*
 * See http_reply.h.
 */
#include <string.h>

#include "http_reply.h"

#define HEAD_END "\r\n\r\n"
#define HEAD_END_LENGTH 4u
#define STATUS_AT 9u	/* HTTP/1.1 200 */

void reply_begin(struct reply *reply)
{
	reply->head_length = reply->body_length = 0;
	reply->in_body = reply->wrong = false;
}

static void take_body(struct reply *reply, const struct file *file, const uint8_t *piece,
		      size_t length)
{
	if (length > file->length - reply->body_length ||
	    memcmp(file->bytes + reply->body_length, piece, length)) {
		reply->wrong = true;
		return;
	}
	reply->body_length += length;
}

void reply_take(struct reply *reply, const struct file *file, const uint8_t *piece, size_t length)
{
	size_t room = sizeof(reply->head) - reply->head_length, taken = length, head;
	const char *end;

	if (reply->wrong)
		return;
	if (reply->in_body) {
		take_body(reply, file, piece, length);
		return;
	}
	taken = taken < room ? taken : room;
	memcpy(reply->head + reply->head_length, piece, taken);
	reply->head_length += taken;
	end = memmem(reply->head, reply->head_length, HEAD_END, HEAD_END_LENGTH);
	if (!end) {
		reply->wrong = reply->head_length == sizeof(reply->head);
		return;
	}
	head = (size_t)(end - reply->head) + HEAD_END_LENGTH;
	taken -= reply->head_length - head; /* of this piece, what belongs to the head */
	reply->head_length = head;
	reply->in_body = true;
	reply->wrong = head < STATUS_AT + 3 || memcmp(reply->head, "HTTP/1.", 7) ||
		       memcmp(reply->head + STATUS_AT, "200", 3);
	if (!reply->wrong)
		take_body(reply, file, piece + taken, length - taken);
}

bool reply_is_whole(const struct reply *reply, const struct file *file)
{
	return reply->in_body && !reply->wrong && reply->body_length == file->length;
}
