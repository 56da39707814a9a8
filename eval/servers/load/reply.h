/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The requests of a load, and the check of replies: reply.c. load.c owns the connections.
 */
#ifndef EVAL_SERVERS_REPLY_H
#define EVAL_SERVERS_REPLY_H

#include <stdbool.h>
#include <stddef.h>

/* Options: their values are these numbers, which no letter has. */
enum reply_option {
	REPLY_HTTP = 256, /* a path */
	REPLY_BODY,	  /* a file: what HTTP is to deliver */
	REPLY_SEND,	  /* a file: the bytes of a request */
	REPLY_EXPECT,	  /* a file: the bytes of its reply */
	REPLY_OPENING,	  /* a file to send when a connection has begun */
	REPLY_UNTIL,	  /* a file: the bytes with which the server's next words end */
};

/* Takes an option; false where it is none of these. */
bool reply_option(int option, const char *value);
/* Whether the options say what to ask. */
bool reply_is_asked(void);
/* Makes the request. `once`: a connection serves for one request, as the request then says. */
void reply_prepare(bool once);

/* The state of one reply. */
struct reply {
	size_t length, head; /* bytes so far; of them the head of HTTP, 0 before its end */
	char *bytes;
};

enum reply_state { REPLY_NOTHING, REPLY_PART, REPLY_WHOLE, REPLY_ENDED };

/* Goes through the protocol's opening on a connection that blocks. */
void reply_open(int socket);
void reply_begin(struct reply *reply);
void reply_ask(int socket);
/*
 * Takes what has come. A whole reply is the right one: another one ends the program. Where a
 * connection serves for one request of HTTP, a reply is whole when the server has closed.
 */
enum reply_state reply_take(struct reply *reply, int socket);

#endif
