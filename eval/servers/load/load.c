// SPDX-License-Identifier: GPL-2.0-only
/*
 * A load of a known amount for a server, over TCP, UDP or a Unix socket: each of so many
 * connections has one request under way. It owns the connections, their order and the end; reply.c
 * owns what is asked, and whether a reply is right.
 *
 * In a free load, a connection asks again as soon as its reply is there. In a lockstep load, all
 * connections ask, and the next round begins when all replies are there: so no timing decides how
 * many requests a server finds at once. A wrong reply, a connection that ends early and a silence
 * end the program with status 1.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "measure.h"
#include "reply.h"
#include "stay.h"

#define CONNECTIONS_MAX 4096u
#define REQUESTS_MAX 100000000u
#define EVENTS 64
#define SILENCE_MS 60000

struct connection {
	int socket; /* -1: none */
	bool asked; /* a reply is due */
	struct reply reply;
};

static struct {
	union {
		struct sockaddr any;
		struct sockaddr_in in;
		struct sockaddr_un un;
	} server;
	socklen_t length;
	int type;
	unsigned int connections, idle;
	uint64_t requests;
	bool close, lockstep;
	const char *stay, *again; /* paths of a socket: see stay.h */
} wanted = { .type = SOCK_STREAM, .connections = 1, .requests = 1 };

static struct {
	int epoll;
	struct connection connections[CONNECTIONS_MAX];
	uint64_t begun, replies;
} work;

static void to_port(const char *option, const char *text, int type)
{
	wanted.server.in.sin_family = AF_INET;
	wanted.server.in.sin_port = htons((uint16_t)measure_parse_number(option, text, UINT16_MAX));
	wanted.server.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	wanted.length = sizeof(wanted.server.in);
	wanted.type = type;
}

static void to_path(const char *path)
{
	if (strlen(path) >= sizeof(wanted.server.un.sun_path))
		measure_fail("--unix %s: too long for the address of a socket", path);
	wanted.server.un.sun_family = AF_UNIX;
	strcpy(wanted.server.un.sun_path, path);
	wanted.length = sizeof(wanted.server.un);
}

/* Options of the connections; false for those of reply.c. */
static bool take_option(int option, const char *value)
{
	switch (option) {
	case 'p':
		to_port("--port", value, SOCK_STREAM);
		return true;
	case 'd':
		to_port("--udp", value, SOCK_DGRAM);
		return true;
	case 'u':
		to_path(value);
		return true;
	case 'c':
		wanted.connections = (unsigned int)measure_parse_number("--connections", value,
									CONNECTIONS_MAX);
		return true;
	case 'i':
		wanted.idle = (unsigned int)measure_parse_number("--idle", value, CONNECTIONS_MAX);
		return true;
	case 'r':
		wanted.requests = measure_parse_number("--requests", value, REQUESTS_MAX);
		return true;
	case 'x':
		wanted.close = true;
		return true;
	case 'l':
		wanted.lockstep = true;
		return true;
	case 's':
		wanted.stay = value;
		return true;
	case 'a':
		wanted.again = value;
		return true;
	default:
		return false;
	}
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "port", 1, NULL, 'p' },	 { "udp", 1, NULL, 'd' },
		{ "unix", 1, NULL, 'u' },	 { "connections", 1, NULL, 'c' },
		{ "idle", 1, NULL, 'i' },	 { "requests", 1, NULL, 'r' },
		{ "close", 0, NULL, 'x' },	 { "lockstep", 0, NULL, 'l' },
		{ "stay", 1, NULL, 's' },	 { "again", 1, NULL, 'a' },
		{ "http", 1, NULL, REPLY_HTTP }, { "body", 1, NULL, REPLY_BODY },
		{ "send", 1, NULL, REPLY_SEND }, { "expect", 1, NULL, REPLY_EXPECT },
		{ "opening", 1, NULL, REPLY_OPENING },
		{ "until", 1, NULL, REPLY_UNTIL },
		{ 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0)
		if (option == '?' || (!take_option(option, optarg) &&
				      !reply_option(option, optarg)))
			exit(2);
	if (wanted.again && optind == argc)
		return;
	if (!wanted.length || optind != argc || !reply_is_asked() ||
	    (wanted.stay && wanted.close))
		measure_fail("usage: load --port N | --udp N | --unix PATH [--connections N] "
			     "[--requests N] [--close | --stay SOCKET] [--lockstep] [--idle N] "
			     "[--opening FILE | --until FILE]... "
			     "(--http PATH --body FILE | --send FILE --expect FILE); "
			     "or load --again SOCKET");
	reply_prepare(wanted.close);
}

static void allow_files(void)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* Opens a connection and, where the protocol has one, goes through its opening. */
static int open_one(void)
{
	int one = 1, file = socket(wanted.server.any.sa_family, wanted.type | SOCK_CLOEXEC, 0);

	if (file < 0 || connect(file, &wanted.server.any, wanted.length) < 0)
		measure_fail("no connection: %m");
	if (wanted.server.any.sa_family == AF_INET && wanted.type == SOCK_STREAM)
		setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	reply_open(file);
	return file;
}

static void connect_one(struct connection *connection)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = connection };

	connection->socket = open_one();
	if (fcntl(connection->socket, F_SETFL, O_NONBLOCK) < 0 ||
	    epoll_ctl(work.epoll, EPOLL_CTL_ADD, connection->socket, &event) < 0)
		measure_fail("a connection cannot be watched: %m");
	reply_begin(&connection->reply);
}

/* Asks on the connection, if there is something left to ask. */
static void ask(struct connection *connection)
{
	if (work.begun == wanted.requests)
		return;
	work.begun++;
	if (connection->socket < 0)
		connect_one(connection);
	connection->asked = true;
	reply_begin(&connection->reply);
	reply_ask(connection->socket);
}

static void ask_all(void)
{
	unsigned int i;

	for (i = 0; i < wanted.connections; i++)
		ask(&work.connections[i]);
}

static void finish(struct connection *connection)
{
	connection->asked = false;
	work.replies++;
	if (wanted.close) {
		close(connection->socket); /* which takes it from the epoll set */
		connection->socket = -1;
	}
	if (!wanted.lockstep)
		ask(connection);
	else if (work.replies == work.begun)
		ask_all();
}

static void look_at(struct connection *connection)
{
	enum reply_state state;

	if (connection->socket < 0)
		return; /* closed by an event before, of the same look */
	state = reply_take(&connection->reply, connection->socket);
	if (state == REPLY_ENDED)
		measure_fail("after %llu replies a connection ended %s",
			     (unsigned long long)work.replies,
			     connection->asked ? "before its reply" : "by itself");
	if (!connection->asked && state != REPLY_NOTHING)
		measure_fail("more bytes came than a reply has");
	if (state == REPLY_WHOLE)
		finish(connection);
}

/* Asks as often as is wanted, and returns when the last reply is there. */
static uint64_t run(void)
{
	struct epoll_event events[EVENTS];

	work.begun = work.replies = 0;
	ask_all();
	while (work.replies < wanted.requests) {
		int count = epoll_wait(work.epoll, events, EVENTS, SILENCE_MS);

		if (count <= 0)
			measure_fail("no reply in %d s, after %llu of %llu", SILENCE_MS / 1000,
				     (unsigned long long)work.replies,
				     (unsigned long long)wanted.requests);
		for (int at = 0; at < count; at++)
			look_at(events[at].data.ptr);
	}
	return work.replies;
}

static void open_all(void)
{
	unsigned int i;

	allow_files();
	work.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (work.epoll < 0)
		measure_fail("epoll: %m");
	for (i = 0; i < wanted.idle; i++)
		open_one(); /* nobody asks there, and nobody closes it */
	for (i = 0; i < wanted.connections; i++) {
		work.connections[i].socket = -1;
		if (!wanted.close)
			connect_one(&work.connections[i]);
	}
}

int main(int argc, char **argv)
{
	uint64_t replies;

	parse(argc, argv);
	if (wanted.again) {
		replies = stay_ask(wanted.again);
	} else {
		open_all();
		if (wanted.stay)
			stay(wanted.stay, run);
		replies = run();
	}
	printf("%llu replies, each compared\n", (unsigned long long)replies);
	return 0;
}
