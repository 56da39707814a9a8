// SPDX-License-Identifier: GPL-2.0-only
/*
 * A load for a web server: asks for one file over many connections at once, a connection for each
 * request, as fast as replies come. Each reply is held against the file (http_reply.c).
 *
 * A server that is not there yet is waited for; one that has gone ends the load. Connections that
 * fail meanwhile are counted and made again: a server under more load than it can serve drops some.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "workload_clock.h"
#include "measure.h"
#include "http_reply.h"

#define CONNECTIONS_MAX 1024u
#define REQUESTS_MAX 1000000000u
#define SECONDS_MAX 3600u
#define FILE_MAX (1u << 20)
#define REQUEST_MAX 512u
#define PIECE (1u << 16)
#define EVENTS 64
#define EXCERPT 40u		/* of a reply that is wrong, for people */
#define WAIT_MS 50		/* between looks at the clock; a failed connection rests as long */
#define GONE_NS 60000000000u	/* without any reply for so long, the server has gone */

struct connection {
	int socket;		/* -1: to be made */
	bool sent;
	uint64_t not_before;	/* ns: when to make it */
	struct reply reply;
};

static struct {
	struct sockaddr_in server;
	struct file file;
	char request[REQUEST_MAX];
	unsigned int connections;
	uint64_t requests, seconds, wait_s;
} asked = { .connections = 1, .wait_s = 600 };

static struct {
	int epoll;
	struct connection connections[CONNECTIONS_MAX];
	uint64_t begin, first, last;	/* ns; of replies, 0 before the first */
	uint64_t replies, failed;
	uint64_t each_second[SECONDS_MAX];
} work;

static void read_file(const char *path)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;
	uint8_t *bytes;

	if (file < 0 || fstat(file, &status) < 0 || status.st_size > FILE_MAX)
		measure_fail("%s cannot be read, or is larger than %u bytes", path, FILE_MAX);
	asked.file.length = (size_t)status.st_size;
	bytes = malloc(asked.file.length + 1);
	if (!bytes || read(file, bytes, asked.file.length) != status.st_size)
		measure_fail("%s cannot be read: %m", path);
	close(file);
	asked.file.bytes = bytes;
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "host", 1, NULL, 'h' },	 { "port", 1, NULL, 'p' },
		{ "path", 1, NULL, 'f' },	 { "expect", 1, NULL, 'e' },
		{ "connections", 1, NULL, 'c' }, { "requests", 1, NULL, 'r' },
		{ "seconds", 1, NULL, 's' },	 { "wait", 1, NULL, 'w' },
		{ 0 },
	};
	const char *host = "127.0.0.1", *path = "/";
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (option == 'h')
			host = optarg;
		else if (option == 'p')
			asked.server.sin_port =
				htons((uint16_t)measure_parse_number("--port", optarg, UINT16_MAX));
		else if (option == 'f')
			path = optarg;
		else if (option == 'e')
			read_file(optarg);
		else if (option == 'c')
			asked.connections = (unsigned int)measure_parse_number(
				"--connections", optarg, CONNECTIONS_MAX);
		else if (option == 'r')
			asked.requests = measure_parse_number("--requests", optarg, REQUESTS_MAX);
		else if (option == 's')
			asked.seconds = measure_parse_number("--seconds", optarg, SECONDS_MAX);
		else if (option == 'w')
			asked.wait_s = measure_parse_number("--wait", optarg, SECONDS_MAX);
		else
			exit(2);
	}
	asked.server.sin_family = AF_INET;
	if (inet_pton(AF_INET, host, &asked.server.sin_addr) != 1)
		measure_fail("'%s' is not an address like 127.0.0.1", host);
	if (!asked.server.sin_port || !asked.file.bytes || optind != argc)
		measure_fail("usage: ask --port N --expect FILE [--host ADDRESS] [--path PATH] "
			     "[--connections N] [--requests N] [--seconds N] [--wait SECONDS]");
	if ((size_t)snprintf(asked.request, REQUEST_MAX, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n",
			     path, host) >= REQUEST_MAX)
		measure_fail("the path is too long");
}

static void drop(struct connection *connection, uint64_t pause_ns)
{
	close(connection->socket); /* which takes it from the epoll set */
	connection->socket = -1;
	connection->not_before = now_ns() + pause_ns;
}

static void fail(struct connection *connection)
{
	drop(connection, WAIT_MS * 1000000ull);
	work.failed += work.first != 0;
}

static void make(struct connection *connection)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLET,
				     .data.ptr = connection };

	connection->socket = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (connection->socket < 0)
		measure_fail("socket: %m");
	connection->sent = false;
	reply_begin(&connection->reply);
	if ((connect(connection->socket, (struct sockaddr *)&asked.server,
		     sizeof(asked.server)) < 0 && errno != EINPROGRESS) ||
	    epoll_ctl(work.epoll, EPOLL_CTL_ADD, connection->socket, &event) < 0)
		fail(connection);
}

static void count_reply(struct connection *connection)
{
	uint64_t now = now_ns(), second;

	if (!work.first)
		work.first = now;
	work.last = now;
	work.replies++;
	second = (now - work.first) / NS_PER_S;
	if (second < SECONDS_MAX)
		work.each_second[second]++;
	drop(connection, 0);
}

__attribute__((noreturn)) static void fail_wrong(const struct reply *reply)
{
	char begin[EXCERPT + 1];
	size_t length = reply->head_length < EXCERPT ? reply->head_length : EXCERPT;

	for (size_t i = 0; i < length; i++) {
		char one = reply->head[i];

		begin[i] = one >= ' ' && one <= '~' && one != '"' && one != '\\' ? one : '.';
	}
	begin[length] = '\0';
	measure_fail("a reply is not the file; it begins with '%s'", begin);
}

static void take(struct connection *connection)
{
	static uint8_t piece[PIECE];
	ssize_t length;

	while ((length = read(connection->socket, piece, sizeof(piece))) > 0)
		reply_take(&connection->reply, &asked.file, piece, (size_t)length);
	if (connection->reply.wrong)
		fail_wrong(&connection->reply);
	if (length < 0 && errno == EAGAIN)
		return;
	if (reply_is_whole(&connection->reply, &asked.file))
		count_reply(connection);
	else
		fail(connection); /* cut off */
}

static void go_on(struct connection *connection, uint32_t events)
{
	size_t length = strlen(asked.request);

	if (connection->socket < 0)
		return; /* dropped by an event before, of the same look */
	if (!connection->sent && events & EPOLLOUT) {
		if (send(connection->socket, asked.request, length, MSG_NOSIGNAL) !=
		    (ssize_t)length) {
			fail(connection);
			return;
		}
		connection->sent = true;
	}
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		take(connection);
}

static bool is_over(uint64_t now)
{
	if (asked.requests && work.replies >= asked.requests)
		return true;
	if (!work.first) {
		if (now - work.begin > asked.wait_s * NS_PER_S)
			measure_fail("no reply in %llu s", (unsigned long long)asked.wait_s);
		return false;
	}
	return (asked.seconds && now - work.first >= asked.seconds * NS_PER_S) ||
	       (now > work.last && now - work.last > GONE_NS);
}

static void make_due(uint64_t now)
{
	uint64_t open = 0;

	for (unsigned int i = 0; i < asked.connections; i++)
		open += work.connections[i].socket >= 0;
	for (unsigned int i = 0; i < asked.connections; i++) {
		if (work.connections[i].socket >= 0 || work.connections[i].not_before > now)
			continue;
		if (asked.requests && work.replies + open >= asked.requests)
			return; /* what is under way is all that is still to come */
		make(&work.connections[i]);
		open++;
	}
}

static void print(void)
{
	uint64_t seconds = work.first ? (work.last - work.first) / NS_PER_S + 1 : 0;

	printf("{\"requests\": %llu, \"failed\": %llu, \"first_ns\": %llu, \"last_ns\": %llu, "
	       "\"each_second\": [",
	       (unsigned long long)work.replies, (unsigned long long)work.failed,
	       (unsigned long long)work.first, (unsigned long long)work.last);
	for (uint64_t i = 0; i < seconds && i < SECONDS_MAX; i++)
		printf("%s%llu", i ? ", " : "", (unsigned long long)work.each_second[i]);
	printf("]}\n{\"check\": \"ask: every reply is the file\", \"made\": %llu}\n",
	       (unsigned long long)work.replies);
}

int main(int argc, char **argv)
{
	struct epoll_event events[EVENTS];
	uint64_t now;

	parse(argc, argv);
	work.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (work.epoll < 0)
		measure_fail("epoll: %m");
	for (unsigned int i = 0; i < asked.connections; i++)
		work.connections[i].socket = -1;
	work.begin = now_ns();
	while (!is_over(now = now_ns())) {
		int count;

		make_due(now);
		count = epoll_wait(work.epoll, events, EVENTS, WAIT_MS);
		for (int i = 0; i < count; i++)
			go_on(events[i].data.ptr, events[i].events);
	}
	print();
	return 0;
}
