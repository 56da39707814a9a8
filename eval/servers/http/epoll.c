// SPDX-License-Identifier: GPL-2.0-only
/*
 * The twin of examples/http/server.c on epoll: the same steps for each connection, each by a plain
 * system call. A connection is in the epoll set from its first wait on, edge-triggered, so that one
 * whose request is there when it is accepted, and which then ends, never gets there.
 */
#include <err.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../../examples/http/http.h"
#include "../../../examples/http/open.h"

#define EVENTS 64

struct connection {
	LIST_ENTRY(connection) link;	/* in the list of all */
	int fd, file;
	bool watched;	/* it is in the epoll set */
	bool drained;	/* the last read found less than it asked for */
	bool over;	/* its client says no more: no other event will come */
	bool draining;	/* the answer is sent, and what still comes is thrown away */
	unsigned int limit;
	struct http http;
};

static LIST_HEAD(, connection) connections, unused;
static unsigned int connected;
static struct http_accepts accepts = { .n = 1 };
static bool listening, ending;
static int set;
static unsigned int now;	/* in ticks: while the server itself stands still, no time passes */

static void listen_again(void)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = &listener };

	if (!listening && !ending && connected < CONNECTIONS_MAX)
		listening = !epoll_ctl(set, EPOLL_CTL_ADD, listener, &event);
}

static void listen_no_more(void)
{
	if (listening)
		epoll_ctl(set, EPOLL_CTL_DEL, listener, NULL);
	listening = false;
}

static void drop(struct connection *c)
{
	if (c->file >= 0)
		close(c->file);
	close(c->fd);
	c->fd = -1;
	LIST_REMOVE(c, link);
	LIST_INSERT_HEAD(&unused, c, link);
	connected--;
}

static void await(struct connection *c)
{
	struct epoll_event event = {
		.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c,
	};

	if (c->watched)
		return;
	c->watched = true;
	if (epoll_ctl(set, EPOLL_CTL_ADD, c->fd, &event))
		drop(c);
}

/* Sends what there is to be sent. False: the connection waits, or is dropped. */
static bool send_answer(struct connection *c)
{
	struct http *http = &c->http;
	int last;

	/* The end of the connection, which follows, is then in the same segment. */
	last = !http->keep && http->status == 200 && c->drained ? MSG_MORE : 0;
	while (http_is_sending(http)) {
		ssize_t n = http->out_bytes ?
			send(c->fd, http->out, http->out_bytes,
			     MSG_NOSIGNAL | last | (http->rest ? MSG_MORE : 0)) :
			sendfile(c->fd, c->file, &http->offset,
				 http->rest < SENDFILE_MAX ? http->rest : SENDFILE_MAX);

		if (n < 0 && errno == EAGAIN) {
			await(c);
			return false;
		}
		if (n <= 0) {
			drop(c);
			return false;
		}
		c->limit = now + LIMIT_S;
		http_sent(http, (size_t)n);
	}
	if (c->file >= 0)
		close(c->file);
	c->file = -1;
	return true;
}

static void answer(struct connection *c)
{
	struct http *http = &c->http;
	struct stat stat = { 0 };
	ssize_t n = 0;

	if (http->status == 200)
		c->file = (int)syscall(SYS_openat2, root, http->path, &http_how, sizeof(http_how));
	if (c->file >= 0) {
		/* Not by the library's fstat(), which makes the dearer newfstatat(2). */
		syscall(SYS_fstat, c->file, &stat);
		if (http_wants_body(http)) {
			n = read(c->file, http->body, HTTP_BODY_MAX);
			n = n < 0 ? -errno : n;
		}
	}
	http->keep &= !ending;
	http_answer(http, c->file < 0 ? -errno : c->file, &stat, n);
	if (c->file >= 0 && !http->rest) {
		close(c->file);
		c->file = -1;
	}
}

/* Goes on until the connection waits for its client, or ends. */
static void serve(struct connection *c)
{
	struct http *http = &c->http;
	size_t room;
	ssize_t n;

	for (;;) {
		if (http_is_sending(http)) {
			if (!send_answer(c))
				return;
			if (!http->keep && http->status != 200 && !c->draining) {
				/* Its client may still send: an end now would reset the answer. */
				shutdown(c->fd, SHUT_WR);
				c->draining = true;
			} else if (!http->keep) {
				drop(c);
				return;
			}
			c->limit = now + LIMIT_S;
		}
		if (!c->draining && http->bytes && http_next(http)) {
			answer(c);
			continue;
		}
		if (c->draining)
			http->begin = http->bytes = 0;
		if (c->drained && !c->over && !ending) {
			await(c);
			c->drained = false;
			return;
		}
		room = HTTP_REQUEST_MAX - http->bytes;
		n = recv(c->fd, http->in + http->bytes, room, 0);
		if (n < 0 && errno == EAGAIN &&
		    (!ending || c->draining || !http_is_idle(http, 0))) {
			await(c);
			return;
		}
		if (n <= 0) {
			drop(c);
			return;
		}
		http->bytes += (size_t)n;
		c->drained = (size_t)n < room;
	}
}

static void take(int fd)
{
	struct connection *c = LIST_FIRST(&unused);

	if (c)
		LIST_REMOVE(c, link);
	else
		c = malloc(sizeof(*c));
	if (!c) {
		close(fd);
		return;
	}
	memset(c, 0, offsetof(struct connection, http) + offsetof(struct http, in));
	c->fd = fd;
	c->file = -1;
	c->limit = now + LIMIT_S;
	LIST_INSERT_HEAD(&connections, c, link);
	connected++;
	serve(c);
}

static void incoming(void)
{
	unsigned int taken = 0;
	int fd = 0;

	for (; taken < accepts.n; taken++) {
		fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
			break;
		take(fd);
	}
	if (connected >= CONNECTIONS_MAX || (fd < 0 && errno != EAGAIN && errno != ECONNABORTED))
		listen_no_more(); /* the clock starts it again */
	http_accepted(&accepts, taken);
}

static void tick(void)
{
	uint64_t ticks;

	if (read(timer, &ticks, sizeof(ticks)) != sizeof(ticks))
		return;
	now++;
	http_set_date(time(NULL));
	for (struct connection *c = LIST_FIRST(&connections), *next; c; c = next) {
		next = LIST_NEXT(c, link);
		if (c->limit < now || (ending && http_is_idle(&c->http, 0)))
			drop(c);
	}
	listen_again();
}

static void end(void)
{
	ending = true;
	listen_no_more();
	close(listener);
	for (struct connection *c = LIST_FIRST(&connections), *next; c; c = next) {
		next = LIST_NEXT(c, link);
		if (http_is_idle(&c->http, 0))
			drop(c);
	}
}

static void watch(int fd, void *pointer)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = pointer };

	if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event))
		err(1, "epoll_ctl");
}

int main(int argc, char **argv)
{
	struct epoll_event events[EVENTS];

	if (argc != 3)
		errx(2, "usage: %s PORT FOLDER", argv[0]);
	open_all(INADDR_LOOPBACK, argv[1], argv[2]);
	set = epoll_create1(EPOLL_CLOEXEC);
	if (set < 0)
		err(1, "epoll_create1");
	http_set_date(time(NULL));
	watch(timer, &timer);
	watch(signals, &signals);
	listen_again();
	while (!ending || connected) {
		int n = epoll_wait(set, events, EVENTS, -1);

		for (int i = 0; i < n; i++) {
			void *what = events[i].data.ptr;
			struct connection *c = what;

			if (what == &listener) {
				incoming();
			} else if (what == &timer) {
				tick();
			} else if (what == &signals) {
				end();
			} else if (c->fd >= 0) {
				c->over |= events[i].events & EPOLLRDHUP;
				serve(c);
			}
		}
	}
	return 0;
}
