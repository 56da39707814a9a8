// SPDX-License-Identifier: MIT
/*
 * A web server of static files on fine-grained threads and programs of calls. Each connection is a
 * thread: a phase ends by queueing calls and naming the phase that goes on with their results. One
 * crossing makes the calls of all connections. Calls that belong together are one program: accept
 * and receive, until nobody waits; open, fstat, read and close a file.
 *
 *	http PORT FOLDER
 *
 * HTTP itself is http.c's, and what is opened first is open.c's. SIGTERM ends the server when the
 * answers under way are sent.
 */
#include <err.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include <trapless.h>

#include "http.h"
#include "open.h"

#define WAIT_FOR (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)

struct connection {
	LIST_ENTRY(connection) link;	/* in the list of all */
	struct tl_thread *thread;
	int64_t fd, file;
	int64_t received, sent, read, closed, shown;	/* results of calls */
	bool waited;		/* the scheduler knows the descriptor */
	bool drained;		/* the last call found less than it asked for */
	bool draining;		/* the answer is sent, and what still comes is thrown away */
	unsigned int limit;
	struct stat stat;
	struct http http;
};

static struct tl_sched *sched;
static LIST_HEAD(, connection) connections, unused;
static struct connection *next[HTTP_ACCEPTS_MAX];
static unsigned int connected, now;	/* time is in ticks: it stands still if the server does */
static struct http_accepts accepts = { .n = 1 };
static bool listening, ending;
static uint64_t ticks;

static void receive(struct tl_thread *self, struct connection *c);
static void send_answer(struct tl_thread *self, struct connection *c);

/* ---- Connections -------------------------------------------------------------------------- */

static struct connection *connection_new(void)
{
	struct connection *c = LIST_FIRST(&unused);

	if (c)
		LIST_REMOVE(c, link);
	else if (!(c = malloc(sizeof(*c))))
		err(1, "malloc");
	/* All but the buffers. */
	memset(c, 0, offsetof(struct connection, http) + offsetof(struct http, in));
	c->file = -1;
	return c;
}

static void dropped(struct tl_thread *self, void *arg)
{
	struct connection *c = arg;

	(void)self;
	LIST_REMOVE(c, link);
	LIST_INSERT_HEAD(&unused, c, link);
	if (!--connected && ending)
		tl_event_remove(sched, timer);
}

static void drop(struct tl_thread *self, struct connection *c)
{
	if (c->waited)
		tl_event_remove(sched, (int)c->fd);
	if (c->file >= 0)
		TL_CALL(sched, NULL, NULL, SYS_close, c->file);
	TL_CALL(sched, tl_then(self, dropped, 1), NULL, SYS_close, c->fd);
}

/* ---- Answers ------------------------------------------------------------------------------ */

static void answer(struct tl_thread *self, void *arg)
{
	struct connection *c = arg;

	c->http.keep &= !ending;
	http_answer(&c->http, c->file, &c->stat, c->read);
	if (c->closed >= 0)
		c->file = -1;
	c->limit = now + LIMIT_S;
	send_answer(self, c);
}

/* Opens and reads the file. It is closed at once where the read has shown its end. */
static void fetch(struct tl_thread *self, struct connection *c)
{
	int file = tl_sched_reserve(sched, 4);

	TL_CALL(sched, NULL, &c->file, SYS_openat2, root, c->http.path, &http_how,
		sizeof(http_how));
	TL_CALL(sched, http_wants_body(&c->http) ? NULL : tl_then(self, answer, 1), NULL,
		SYS_fstat | TL_RESULT(0), file, &c->stat);
	if (!http_wants_body(&c->http))
		return;
	TL_CALL(sched, NULL, &c->read, SYS_read | TL_RESULT(0), file, c->http.body, HTTP_BODY_MAX);
	TL_CALL(sched, tl_then(self, answer, 1), &c->closed, SYS_close | TL_RESULT(0), file);
	tl_sched_jump(sched, (unsigned int)file + 2, TL_IF_FULL, (unsigned int)file + 4);
}

/* The next request, if it is there. */
static void go_on(struct tl_thread *self, struct connection *c)
{
	if (c->draining)
		c->http.begin = c->http.bytes = 0;
	else if (c->http.bytes && http_next(&c->http)) {
		c->file = c->closed = -1;
		if (c->http.status == 200)
			fetch(self, c);
		else
			answer(self, c);
		return;
	}
	receive(self, c);
}

/* The connection waits for its client; what has come by now is seen. */
static void await(struct tl_thread *self, struct connection *c, tl_entry then)
{
	c->thread = self;
	c->waited = true;
	c->drained = false;
	if (tl_wait(sched, tl_then(self, then, 1), &c->shown, (int)c->fd, WAIT_FOR, -1))
		drop(self, c);
}

/* All is sent. The client of a wrong request may go on sending; an end would reset the answer. */
static void answered(struct tl_thread *self, struct connection *c)
{
	if (c->file >= 0)
		TL_CALL(sched, NULL, NULL, SYS_close, c->file);
	c->file = -1;
	if (!c->http.keep && c->http.status < 400) {
		drop(self, c);
		return;
	}
	if (!c->http.keep) {
		c->draining = true;
		TL_CALL(sched, NULL, NULL, SYS_shutdown, c->fd, SHUT_WR);
	}
	go_on(self, c);
}

static void sent(struct tl_thread *self, void *arg)
{
	struct connection *c = arg;

	if (c->sent > 0) {
		http_sent(&c->http, (size_t)c->sent);
		c->limit = now + LIMIT_S;
	}
	if (c->sent <= 0 && c->sent != -EAGAIN)
		drop(self, c);
	else if (!http_is_sending(&c->http))
		answered(self, c);
	else
		send_answer(self, c);
}

static void woken(struct tl_thread *self, void *arg)
{
	struct connection *c = arg;

	if (c->sent == -EAGAIN)
		c->sent = 0; /* now there is room */
	if (c->shown <= 0)
		drop(self, c); /* its time is over, or the server ends */
	else if (c->sent == -EINPROGRESS) /* the wait ended at once: the send comes first */
		TL_CALL(sched, tl_then(self, woken, 1), NULL, SYS_getppid);
	else if (!http_is_sending(&c->http))
		receive(self, c);
	else if (c->sent)
		sent(self, c);
	else
		send_answer(self, c);
}

static void closed(struct tl_thread *self, void *arg)
{
	struct connection *c = arg;

	if (c->closed < 0)
		sent(self, arg);
	else
		dropped(self, arg);
}

/*
 * The last answer and the end of the connection are one program, and one segment where nothing is
 * left to be received (else the end would be a reset). The close takes the send's result as an
 * argument that it does not have: so it is cancelled if the send has failed.
 */
static void send_last(struct tl_thread *self, struct connection *c)
{
	unsigned int send;

	if (c->waited)
		tl_event_remove(sched, (int)c->fd);
	c->waited = false;
	send = (unsigned int)tl_sched_reserve(sched, 2);
	TL_CALL(sched, NULL, &c->sent, SYS_sendto, c->fd, c->http.out, c->http.out_bytes,
		MSG_NOSIGNAL | (c->drained ? MSG_MORE : 0));
	TL_CALL(sched, tl_then(self, closed, 1), &c->closed, SYS_close | TL_RESULT(1), c->fd, send);
	tl_sched_jump(sched, send, TL_IF_SHORT, send + 2);
}

/*
 * Sends what there is to be sent. In the usual case nobody waits for the result: if the answer is
 * sent in part, the descriptor shows when there is room for the rest.
 */
static void send_answer(struct tl_thread *self, struct connection *c)
{
	struct http *http = &c->http;
	bool whole = http->out_bytes && !http->rest && c->file < 0;
	int flags = MSG_NOSIGNAL | (http->rest ? MSG_MORE : 0);

	if (c->sent == -EAGAIN) {
		c->sent = 0;
		await(self, c, woken);
	} else if (whole && http->keep && c->drained && http->begin == http->bytes) {
		c->sent = -EINPROGRESS;
		TL_CALL(sched, NULL, &c->sent, SYS_sendto, c->fd, http->out, http->out_bytes,
			flags);
		await(self, c, woken);
	} else if (whole && !http->keep && http->status < 400) {
		send_last(self, c);
	} else if (http->out_bytes) {
		TL_CALL(sched, tl_then(self, sent, 1), &c->sent, SYS_sendto, c->fd, http->out,
			http->out_bytes, flags);
	} else {
		TL_CALL(sched, tl_then(self, sent, 1), &c->sent, SYS_sendfile, c->fd, c->file,
			&http->offset, http->rest < SENDFILE_MAX ? http->rest : SENDFILE_MAX);
	}
}

static void received(struct tl_thread *self, void *arg)
{
	struct connection *c = arg;
	int64_t room = HTTP_REQUEST_MAX - (int64_t)c->http.bytes;

	if (c->received == -EAGAIN && (!ending || c->draining || !http_is_idle(&c->http, 0))) {
		await(self, c, woken);
	} else if (c->received <= 0 || c->limit < now) {
		drop(self, c); /* who never stops sending is never found waiting */
	} else {
		c->http.bytes += (size_t)c->received;
		c->drained = c->received < room;
		go_on(self, c);
	}
}

static void receive(struct tl_thread *self, struct connection *c)
{
	if (c->drained && !ending)
		await(self, c, woken);
	else
		TL_CALL(sched, tl_then(self, received, 1), &c->received, SYS_recvfrom, c->fd,
			c->http.in + c->http.bytes, HTTP_REQUEST_MAX - c->http.bytes);
}

/* ---- The listening socket ----------------------------------------------------------------- */

static void incoming(struct tl_thread *self, void *arg);

static void start_listening(void)
{
	if (!listening && !ending && connected < CONNECTIONS_MAX)
		listening = !tl_event_add(sched, listener, EPOLLIN, incoming, NULL);
}

static void stop_listening(void)
{
	if (listening)
		tl_event_remove(sched, listener);
	listening = false;
}

static void accepted(struct tl_thread *self, void *arg)
{
	unsigned int taken = 0;
	int64_t error = 0;

	(void)self;
	(void)arg;
	for (; taken < accepts.n; taken++) {
		struct connection *c = next[taken];

		error = c->fd;
		if (error < 0 || tl_thread_create(sched, NULL, received, c, 0))
			break;
		next[taken] = NULL;
		c->limit = now + LIMIT_S;
		LIST_INSERT_HEAD(&connections, c, link);
		connected++;
	}
	http_accepted(&accepts, taken);
	if (connected >= CONNECTIONS_MAX ||
	    (error < 0 && error != -EAGAIN && error != -ECONNABORTED))
		stop_listening(); /* the clock starts it again */
}

/*
 * A program: accept a connection and receive what is there, so many times. Each accept but the
 * first takes the result of the one before as an argument that it does not have: where there is no
 * more connection, the other calls are cancelled.
 */
static void incoming(struct tl_thread *self, void *arg)
{
	int slot = tl_sched_reserve(sched, 2 * accepts.n);

	(void)arg;
	for (unsigned int i = 0; i < accepts.n; i++, slot += 2) {
		struct connection *c = next[i] ? next[i] : (next[i] = connection_new());

		TL_CALL(sched, NULL, &c->fd, SYS_accept4 | (i ? TL_RESULT(4) : 0), listener, NULL,
			NULL, SOCK_NONBLOCK | SOCK_CLOEXEC, slot - 2);
		TL_CALL(sched, i + 1 < accepts.n ? NULL : tl_then(self, accepted, 1), &c->received,
			SYS_recvfrom | TL_RESULT(0), slot, c->http.in, HTTP_REQUEST_MAX);
	}
}

/* ---- The clock, and the end --------------------------------------------------------------- */

/* Once a second: drops who is too slow, or was missed by the end, and sets the date. */
static void tick(struct tl_thread *self, void *arg)
{
	struct connection *c;

	TL_CALL(sched, NULL, NULL, SYS_read, timer, &ticks, sizeof(ticks));
	now++;
	http_set_date(time(NULL));
	LIST_FOREACH(c, &connections, link)
		if (c->thread && (c->limit < now || (ending && http_is_idle(&c->http, c->sent))))
			tl_wait_cancel(c->thread);
	start_listening();
	(void)self;
	(void)arg;
}

static void end(struct tl_thread *self, void *arg)
{
	struct connection *c;

	(void)self;
	(void)arg;
	stop_listening();
	ending = true;
	close(listener);
	tl_event_remove(sched, signals);
	LIST_FOREACH(c, &connections, link)
		if (c->thread && http_is_idle(&c->http, c->sent))
			tl_wait_cancel(c->thread);
	if (!connected)
		tl_event_remove(sched, timer);
}

int main(int argc, char **argv)
{
	const struct tl_sched_config config = {
		.size = sizeof(config), .flush_at = 256, .entries = 1024,
	};
	int error;

	if (argc != 3)
		errx(2, "usage: http PORT FOLDER");
	open_all(INADDR_ANY, argv[1], argv[2]);
	error = tl_sched_create(&sched, &config);
	if (!error)
		error = tl_thread_create(sched, NULL, tick, NULL, 0);
	if (!error)
		error = tl_event_add(sched, timer, EPOLLIN, tick, NULL);
	if (!error)
		error = tl_event_add(sched, signals, EPOLLIN, end, NULL);
	if (!error)
		error = tl_sched_run(sched);
	if (error)
		errx(1, "%s", strerror(-error));
	tl_sched_destroy(sched);
	return 0;
}
