/* SPDX-License-Identifier: MIT */
/*
 * HTTP/1.1 as a server of static files needs it: what a request asks for, and what is answered. It
 * makes no system call, so that servers of any kind can share it.
 */
#ifndef EXAMPLES_HTTP_H
#define EXAMPLES_HTTP_H

#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#define HTTP_REQUEST_MAX 4096	/* head of a request, bytes; a longer one is answered with 431 */
#define HTTP_HEAD_MAX 384	/* head of an answer with the text of an error, bytes */
#define HTTP_BODY_MAX 16384	/* beginning of a file that is sent together with the head, bytes */

/* One connection: the request at hand, and its answer. */
struct http {
	const char *path;	/* of the file, below the folder; it lies in `in` */
	int status;		/* of the answer; 200 until something else is known */
	bool keep;		/* the connection stays open after the answer */
	bool old;		/* HTTP/1.0 */
	bool head;		/* HEAD: the answer has no body */
	bool ranged;		/* first..last is wanted; first < 0: the last -first bytes */
	bool conditional;	/* If-Range, which no answer meets: the whole file is sent */
	unsigned int hosts;	/* fields named Host */
	int64_t first, last;

	const char *out;	/* what is to be sent: first these bytes, */
	size_t out_bytes;
	off_t offset;		/* then so many bytes of the file from here on */
	uint64_t rest;

	size_t begin, bytes;	/* of `in`: where the next request begins, and what has come */
	char in[HTTP_REQUEST_MAX];
	char before[HTTP_HEAD_MAX];	/* heads end where the body begins */
	char body[HTTP_BODY_MAX];
};

/* Takes the next request from `in`. False: its end is not there, and there is room for it. */
bool http_next(struct http *http);

/* Is the file's beginning wanted in `body`, up to HTTP_BODY_MAX bytes? */
static inline bool http_wants_body(const struct http *http)
{
	return !http->head && !http->ranged;
}

/* Is there anything left to send? */
static inline bool http_is_sending(const struct http *http)
{
	return http->out_bytes || http->rest;
}

/* Has the client all that it asked for, if `sent` bytes of `out` were sent? */
static inline bool http_is_idle(const struct http *http, int64_t sent)
{
	return !http->rest && http->begin == http->bytes &&
	       (!http->out_bytes || sent == (int64_t)http->out_bytes);
}

/* n bytes were sent: of `out`, or else of the file. */
static inline void http_sent(struct http *http, size_t n)
{
	if (http->out_bytes) {
		http->out += n;
		http->out_bytes -= n;
	} else {
		http->rest -= n;
	}
}

/*
 * Makes the answer of what the calls returned: the file's descriptor or -errno, its status if it is
 * open, and the number of bytes in `body` or -errno.
 */
void http_answer(struct http *http, int64_t file, const struct stat *stat, int64_t read);

/* For openat2(2): no path leads out of the folder, be it by "..", be it by a link. */
extern const struct open_how http_how;

/* Sets the date that answers tell; a server calls it once a second. */
void http_set_date(time_t now);

/*
 * How many connections to ask for when some wait: as many as there were, and now and then twice as
 * many. A call of accept(2) that finds none costs almost as much as one that finds one.
 */
struct http_accepts {
	unsigned int n;			/* to ask for */
	unsigned int full, patience;	/* so often all came, and may until more are asked for */
	unsigned int fewer, most;	/* so often not all came, and the most of these times */
};

#define HTTP_ACCEPTS_MAX 16u

void http_accepted(struct http_accepts *accepts, unsigned int taken);

#endif /* EXAMPLES_HTTP_H */
