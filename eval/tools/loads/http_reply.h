/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A web server's reply as it arrives, in pieces cut anywhere, held against the file that it should
 * be. It owns no connection.
 */
#ifndef EVAL_REPLY_H
#define EVAL_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPLY_HEAD_MAX 2048u

struct file {
	const uint8_t *bytes;
	size_t length;
};

struct reply {
	char head[REPLY_HEAD_MAX];
	size_t head_length;
	size_t body_length;	/* so far */
	bool in_body;
	bool wrong;
};

void reply_begin(struct reply *reply);

/* Takes a piece; what does not fit the file makes the reply wrong. */
void reply_take(struct reply *reply, const struct file *file, const uint8_t *piece, size_t length);

/* Whether all of it has come: status 200 and the whole file. */
bool reply_is_whole(const struct reply *reply, const struct file *file);

#endif /* EVAL_REPLY_H */
