// SPDX-License-Identifier: GPL-2.0-only
/*
 * The twin of examples/http/server.c on io_uring, with what makes it cheap: one multishot accept,
 * connections and files that have no descriptor but a place in the ring's table, and linked
 * requests (open, read, close; send, receive; send, close). A file that is larger than the buffer,
 * and one of which a part or only the head is wanted, has a descriptor: the ring cannot ask for the
 * size of the other kind.
 */
#include <err.h>
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "../../../examples/http/http.h"
#include "../../../examples/http/open.h"

#define ENTRIES 2048u
#define COMPLETIONS 8192u

enum operation { ACCEPT, RECEIVE, READ, SEND, TICK, SIGNAL, OTHER };

struct connection {
	bool draining;	/* the answer is sent, and what still comes is thrown away */
	bool receiving;
	bool drained;	/* the last receive found less than it asked for */
	int file;	/* a descriptor, or -1 */
	unsigned int limit;
	struct http http;
};

static struct io_uring ring;
static struct connection *connections[CONNECTIONS_MAX], *unused[CONNECTIONS_MAX];
static unsigned int connected, spare;
static bool listening, ending;
static unsigned int now;	/* in ticks: while the server itself stands still, no time passes */
static struct open_how how;	/* of a file without a descriptor, which no exec could keep */

/* ---- Requests ----------------------------------------------------------------------------- */

/* A chain of linked requests must not be submitted in parts. */
static void room_for(unsigned int n)
{
	if (io_uring_sq_space_left(&ring) < n)
		io_uring_submit(&ring);
}

static struct io_uring_sqe *request(void)
{
	room_for(1);
	return io_uring_get_sqe(&ring);
}

static void tag(struct io_uring_sqe *sqe, enum operation operation, unsigned int place,
		unsigned int flags)
{
	io_uring_sqe_set_data64(sqe, (uint64_t)operation << 32 | place);
	sqe->flags |= (uint8_t)flags;
}

static void start_listening(void)
{
	struct io_uring_sqe *sqe;

	if (listening || ending || connected >= CONNECTIONS_MAX)
		return;
	listening = true;
	sqe = request();
	io_uring_prep_multishot_accept_direct(sqe, listener, NULL, NULL, 0);
	tag(sqe, ACCEPT, 0, 0);
}

static void shut(unsigned int place, int direction)
{
	struct io_uring_sqe *sqe = request();

	io_uring_prep_shutdown(sqe, (int)place, direction);
	tag(sqe, OTHER, 0, IOSQE_FIXED_FILE | IOSQE_CQE_SKIP_SUCCESS);
}

/* At the end of the server no new request is waited for: what has come by then is received. */
static void receive(unsigned int place)
{
	struct connection *c = connections[place];
	struct io_uring_sqe *sqe = request();

	if (c->draining)
		c->http.begin = c->http.bytes = 0;
	c->receiving = true;
	io_uring_prep_recv(sqe, (int)place, c->http.in + c->http.bytes,
			   HTTP_REQUEST_MAX - c->http.bytes, 0);
	tag(sqe, RECEIVE, place, IOSQE_FIXED_FILE);
	if (ending && !c->draining && !c->http.bytes)
		shut(place, SHUT_RD);
}

static void drop(unsigned int place)
{
	struct connection *c = connections[place];
	struct io_uring_sqe *sqe = request();

	if (c->file >= 0)
		close(c->file);
	io_uring_prep_close_direct(sqe, place);
	tag(sqe, OTHER, 0, IOSQE_CQE_SKIP_SUCCESS);
	connections[place] = NULL;
	unused[spare++] = c;
	connected--;
}

/* ---- Answers ------------------------------------------------------------------------------ */

/* Reads the next part of a large file into the buffer, to be sent. False: it cannot. */
static bool read_part(struct connection *c)
{
	struct http *http = &c->http;
	uint64_t most = http->rest < HTTP_BODY_MAX ? http->rest : HTTP_BODY_MAX;
	ssize_t n = pread(c->file, http->body, most, http->offset);

	if (n <= 0)
		return false;
	http->offset += n;
	http->rest -= (uint64_t)n;
	http->out = http->body;
	http->out_bytes = (size_t)n;
	return true;
}

/* Sends what is in the buffer, all of it; the last answer's close, or a receive, is linked. */
static void send_part(unsigned int place)
{
	struct connection *c = connections[place];
	struct http *http = &c->http;
	bool last = !http->rest, shuts = last && !http->keep && http->status < 400;
	bool receives = last && http->keep && http->begin == http->bytes;
	struct io_uring_sqe *sqe;

	room_for(2);
	sqe = request();
	io_uring_prep_send(sqe, (int)place, http->out, http->out_bytes,
			   MSG_NOSIGNAL | MSG_WAITALL |
				   (!last || (shuts && c->drained) ? MSG_MORE : 0));
	tag(sqe, SEND, place, IOSQE_FIXED_FILE | (shuts || receives ? IOSQE_IO_LINK : 0));
	if (receives) {
		http->bytes = http->begin = 0;
		receive(place);
	} else if (shuts) {
		sqe = request();
		io_uring_prep_close_direct(sqe, place);
		tag(sqe, OTHER, 0, IOSQE_CQE_SKIP_SUCCESS);
	}
}

static void answer(unsigned int place, int64_t file, const struct stat *stat, int64_t read)
{
	struct connection *c = connections[place];

	c->http.keep &= !ending;
	c->limit = now + LIMIT_S;
	http_answer(&c->http, file, stat, read);
	send_part(place);
}

/* By plain calls, since there is no other way to know a size. */
static void answer_by_descriptor(unsigned int place, int64_t read)
{
	struct connection *c = connections[place];
	struct stat stat = { 0 };

	c->file = (int)syscall(SYS_openat2, root, c->http.path, &http_how, sizeof(http_how));
	if (c->file >= 0 && syscall(SYS_fstat, c->file, &stat))
		stat.st_mode = 0;
	answer(place, c->file < 0 ? -errno : c->file, &stat, read);
}

/* Opens, reads and closes the file, by a place of the table that nothing else has. */
static void fetch(unsigned int place)
{
	struct http *http = &connections[place]->http;
	unsigned int file = CONNECTIONS_MAX + place;
	struct io_uring_sqe *sqe;

	room_for(3);
	sqe = request();
	io_uring_prep_openat2_direct(sqe, root, http->path, &how, file);
	tag(sqe, OTHER, place + 1, IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS);
	sqe = request();
	io_uring_prep_read(sqe, (int)file, http->body, HTTP_BODY_MAX, 0);
	tag(sqe, READ, place, IOSQE_FIXED_FILE | IOSQE_IO_HARDLINK);
	sqe = request();
	io_uring_prep_close_direct(sqe, file);
	tag(sqe, OTHER, 0, IOSQE_CQE_SKIP_SUCCESS);
}

/* The next request, if it is there. */
static void go_on(unsigned int place)
{
	struct connection *c = connections[place];

	if (c->draining || !c->http.bytes || !http_next(&c->http))
		receive(place);
	else if (c->http.status != 200)
		answer(place, 0, NULL, 0);
	else if (http_wants_body(&c->http))
		fetch(place);
	else
		answer_by_descriptor(place, 0);
}

/* ---- Completions -------------------------------------------------------------------------- */

static void take(unsigned int place)
{
	struct connection *c = spare ? unused[--spare] : malloc(sizeof(*c));

	if (!c)
		err(1, "malloc");
	memset(c, 0, offsetof(struct connection, http) + offsetof(struct http, in));
	c->file = -1;
	c->limit = now + LIMIT_S;
	connections[place] = c;
	connected++;
	receive(place);
}

static void accepted(const struct io_uring_cqe *cqe)
{
	listening = cqe->flags & IORING_CQE_F_MORE;
	if (cqe->res >= 0)
		take((unsigned int)cqe->res);
	/* Where places or memory are short the clock starts it again. */
	if (!listening && (cqe->res >= 0 || cqe->res == -ECONNABORTED))
		start_listening();
}

static void received(unsigned int place, int result)
{
	struct connection *c = connections[place];

	if (!c || result == -ECANCELED)
		return; /* the send before it has failed, and has dropped the connection */
	c->receiving = false;
	if (result <= 0) {
		drop(place);
		return;
	}
	c->drained = (size_t)result < HTTP_REQUEST_MAX - c->http.bytes;
	c->http.bytes += (size_t)result;
	go_on(place);
}

static void have_read(unsigned int place, int result)
{
	static const struct stat small = { .st_mode = S_IFREG };

	if (result == -ECANCELED)
		return; /* the open has failed, and says why */
	if (result == HTTP_BODY_MAX)
		answer_by_descriptor(place, result);
	else
		answer(place, result < 0 ? result : 0, &small, result);
}

static void sent(unsigned int place, int result)
{
	struct connection *c = connections[place];
	struct http *http = &c->http;
	bool more = http->rest;

	if (result < 0 || (size_t)result != http->out_bytes || (more && !read_part(c))) {
		drop(place);
		return;
	}
	c->limit = now + LIMIT_S;
	if (more) {
		send_part(place);
		return;
	}
	http->out_bytes = 0;
	if (c->file >= 0)
		close(c->file);
	c->file = -1;
	if (c->receiving) {
		if (ending)
			shut(place, SHUT_RD);
		return;
	}
	if (http->keep) {
		go_on(place);
	} else if (http->status < 400) {
		connections[place] = NULL; /* the close was linked */
		unused[spare++] = c;
		connected--;
	} else {
		/* Its client may still send: an end now would reset the answer. */
		shut(place, SHUT_WR);
		c->draining = true;
		receive(place);
	}
}

/* ---- The clock, and the end --------------------------------------------------------------- */

static void tick(void)
{
	static struct __kernel_timespec second = { .tv_sec = 1 };
	struct io_uring_sqe *sqe = request();

	io_uring_prep_timeout(sqe, &second, 0, 0);
	tag(sqe, TICK, 0, 0);
	now++;
	http_set_date(time(NULL));
	for (unsigned int place = 0; place < CONNECTIONS_MAX; place++)
		if (connections[place] && connections[place]->limit < now) {
			connections[place]->limit = now + LIMIT_S;
			shut(place, SHUT_RDWR);
		} else if (connections[place] && ending && connections[place]->draining) {
			shut(place, SHUT_RD);
		}
	start_listening();
}

static void end(void)
{
	struct io_uring_sqe *sqe = request();

	ending = true;
	io_uring_prep_cancel64(sqe, (uint64_t)ACCEPT << 32, 0);
	tag(sqe, OTHER, 0, IOSQE_CQE_SKIP_SUCCESS);
	close(listener);
	for (unsigned int place = 0; place < CONNECTIONS_MAX; place++)
		if (connections[place] && connections[place]->receiving &&
		    http_is_idle(&connections[place]->http, 0))
			shut(place, SHUT_RD);
}

static void complete(const struct io_uring_cqe *cqe)
{
	unsigned int place = (unsigned int)cqe->user_data;

	switch ((enum operation)(cqe->user_data >> 32)) {
	case ACCEPT:
		accepted(cqe);
		break;
	case RECEIVE:
		received(place, cqe->res);
		break;
	case READ:
		have_read(place, cqe->res);
		break;
	case SEND:
		sent(place, cqe->res);
		break;
	case TICK:
		tick();
		break;
	case SIGNAL:
		end();
		break;
	case OTHER:
		if (place) /* an open that has failed */
			answer(place - 1, cqe->res, NULL, 0);
		break;
	}
}

static void open_ring(void)
{
	struct io_uring_params params = {
		.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
			 IORING_SETUP_CQSIZE,
		.cq_entries = COMPLETIONS,
	};
	struct io_uring_sqe *sqe;
	int error = io_uring_queue_init_params(ENTRIES, &ring, &params);

	if (!error)
		error = io_uring_register_files_sparse(&ring, 2 * CONNECTIONS_MAX);
	if (!error)
		error = io_uring_register_file_alloc_range(&ring, 0, CONNECTIONS_MAX);
	if (error)
		errx(1, "io_uring: %s", strerror(-error));
	io_uring_register_ring_fd(&ring);
	sqe = request();
	io_uring_prep_poll_add(sqe, signals, POLLIN);
	tag(sqe, SIGNAL, 0, 0);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		errx(2, "usage: %s PORT FOLDER", argv[0]);
	open_all(INADDR_LOOPBACK, argv[1], argv[2]);
	/* The ring waits for connections by itself where the socket would not refuse to. */
	fcntl(listener, F_SETFL, 0);
	how = http_how;
	how.flags &= ~(uint64_t)O_CLOEXEC;
	open_ring();
	tick();
	while (!ending || connected) {
		struct io_uring_cqe *cqe;
		unsigned int head, n = 0;
		int error = io_uring_submit_and_wait(&ring, 1);

		if (error < 0 && error != -EINTR)
			errx(1, "io_uring: %s", strerror(-error));
		io_uring_for_each_cqe(&ring, head, cqe) {
			complete(cqe);
			n++;
		}
		io_uring_cq_advance(&ring, n);
	}
	return 0;
}
