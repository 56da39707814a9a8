// SPDX-License-Identifier: MIT
/*
 * See http.h. A request is read where it lies, and its path is decoded in place. Requests have no
 * bodies, because what is served are files.
 */
#include "http.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

static const struct { int status; const char *line; } lines[] = {
	{ 200, "200 OK\r\n" }, { 206, "206 Partial Content\r\n" }, { 404, "404 Not Found\r\n" },
	{ 400, "400 Bad Request\r\n" }, { 403, "403 Forbidden\r\n" },
	{ 413, "413 Content Too Large\r\n" }, { 416, "416 Range Not Satisfiable\r\n" },
	{ 431, "431 Request Header Fields Too Large\r\n" }, { 501, "501 Not Implemented\r\n" },
	{ 503, "503 Service Unavailable\r\n" }, { 505, "505 HTTP Version Not Supported\r\n" },
	{ 500, "500 Internal Server Error\r\n" }, /* and everything else */
};

static const struct { const char *suffix, *type; } types[] = {
	{ ".html", "text/html" }, { ".css", "text/css" }, { ".js", "text/javascript" },
	{ ".json", "application/json" }, { ".txt", "text/plain" }, { ".svg", "image/svg+xml" },
	{ ".png", "image/png" }, { ".jpg", "image/jpeg" },
};

const struct open_how http_how = {
	.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
	.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
};

static char date[] = "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";

void http_set_date(time_t now)
{
	struct tm tm;

	strftime(date, sizeof(date), "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", gmtime_r(&now, &tm));
}

/* ---- Requests ----------------------------------------------------------------------------- */

/* After a wrong request nobody knows where the next one begins: the connection ends. */
static void refuse(struct http *http, int status)
{
	if (http->status == 200)
		http->status = status;
	http->keep = false;
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 'a' ^ 'A';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes the path in place. There is room for "index.html" where the version was. */
static bool decode(char *path)
{
	char *to = path;

	for (const char *from = path; *from && *from != '?'; from++) {
		int c = (unsigned char)*from;

		if (c == '%') {
			if (hex(from[1]) < 0 || hex(from[2]) < 0)
				return false;
			c = hex(from[1]) << 4 | hex(from[2]);
			from += 2;
		}
		if (!c)
			return false;
		*to++ = (char)c;
	}
	if (to == path || to[-1] == '/')
		to = stpcpy(to, "index.html");
	*to = '\0';
	return true;
}

/* "GET /path HTTP/1.1", or "GET http://host/path HTTP/1.1" as to a proxy. */
static void take_request_line(struct http *http, char *line, char *end)
{
	char *target = memchr(line, ' ', (size_t)(end - line));
	char *version = target ? memchr(target + 1, ' ', (size_t)(end - target - 1)) : NULL;
	bool absolute;

	if (!version || end - version != 9 || memcmp(version, " HTTP/", 6) || version[7] != '.') {
		refuse(http, 400);
		return;
	}
	*version = '\0';
	target++;
	http->old = version[8] == '0';
	http->keep = !http->old;
	http->head = !memcmp(line, "HEAD ", 5);
	if (version[6] != '1')
		refuse(http, 505);
	else if (!http->head && memcmp(line, "GET ", 4))
		refuse(http, 501);
	absolute = !strncasecmp(target, "http://", 7);
	if (absolute)
		target += 7 + strcspn(target + 7, "/?");
	if ((!absolute && *target != '/') || strlen(target) != (size_t)(version - target))
		refuse(http, 400);
	target += strspn(target, "/");
	http->path = target;
}

static const char *number(const char *text, int64_t *value)
{
	for (*value = 0; *text >= '0' && *text <= '9'; text++)
		if (*value < INT64_MAX / 16)
			*value = *value * 10 + *text - '0';
	return text;
}

/* "bytes=0-99", "bytes=100-", "bytes=-100". What is more than one range may be ignored, and is. */
static void take_range(struct http *http, const char *text)
{
	const char *dash = number(text, &http->first), *end;

	if (*dash != '-')
		return;
	end = number(dash + 1, &http->last);
	if (dash == text) {
		http->first = http->last ? -http->last : INT64_MAX;
		http->last = INT64_MAX - 1;
	} else if (end == dash + 1) {
		http->last = INT64_MAX - 1;
	} else if (http->last < http->first) {
		return;
	}
	http->ranged = !*end && end - text > 1;
}

static void take_field(struct http *http, char *line, char *end)
{
	char *colon = memchr(line, ':', (size_t)(end - line)), *value;

	*end = '\0';
	if (!colon || strcspn(line, " \t") < (size_t)(colon - line)) {
		refuse(http, 400);
		return;
	}
	value = colon + 1 + strspn(colon + 1, " \t");
	switch (colon - line) {
	case 4:
		http->hosts += !strncasecmp(line, "Host", 4);
		break;
	case 5:
		if (!strncasecmp(line, "Range", 5) && !strncasecmp(value, "bytes=", 6))
			take_range(http, value + 6);
		break;
	case 8:
		http->conditional |= !strncasecmp(line, "If-Range", 8);
		break;
	case 10:
		if (!strncasecmp(line, "Connection", 10))
			http->keep = http->old ? strcasestr(value, "keep-alive") != NULL :
				     http->keep && !strcasestr(value, "close");
		break;
	case 14:
		if (!strncasecmp(line, "Content-Length", 14) && strcmp(value, "0"))
			refuse(http, 413);
		break;
	case 17:
		if (!strncasecmp(line, "Transfer-Encoding", 17))
			refuse(http, 413);
		break;
	}
}

/* Returns the end of the line, where its line feed is. */
static char *line_end(char *line, const char *end)
{
	return memchr(line, '\n', (size_t)(end - line));
}

/* Returns the end of the head that begins at `line`, or NULL. */
static char *head_end(char *line, const char *end)
{
	while ((line = line_end(line, end))) {
		line++;
		if (line < end && *line == '\n')
			return line + 1;
		if (end - line > 1 && line[0] == '\r' && line[1] == '\n')
			return line + 2;
	}
	return NULL;
}

static void parse(struct http *http, char *line, const char *end)
{
	bool first = true;

	for (char *feed; (feed = line_end(line, end)); line = feed + 1) {
		char *stop = feed > line && feed[-1] == '\r' ? feed - 1 : feed;

		if (first)
			take_request_line(http, line, stop);
		else if (stop != line)
			take_field(http, line, stop);
		first = false;
	}
	http->ranged &= !http->conditional && !http->head;
	if (http->status == 200 && (http->hosts > 1 || (!http->hosts && !http->old) ||
				    !decode((char *)http->path)))
		refuse(http, 400);
}

bool http_next(struct http *http)
{
	char *line = http->in + http->begin, *end = http->in + http->bytes, *stop;

	while (line < end && (*line == '\r' || *line == '\n'))
		line++;
	stop = head_end(line, end);
	memset(http, 0, offsetof(struct http, begin));
	http->status = 200;
	if (stop) {
		parse(http, line, stop);
		http->begin = (size_t)(stop - http->in);
		return true;
	}
	http->begin = 0;
	http->bytes = (size_t)(end - line);
	memmove(http->in, line, http->bytes);
	if (http->bytes < HTTP_REQUEST_MAX)
		return false;
	refuse(http, 431);
	return true;
}

/* ---- Answers ------------------------------------------------------------------------------ */

static int status_of(int64_t error)
{
	switch (error) {
	case -EACCES: case -EPERM:
		return 403;
	case -EMFILE: case -ENFILE: case -ENOMEM: case -EAGAIN:
		return 503;
	default:
		return 404; /* ENOENT; EXDEV for what leads out of the folder */
	}
}

static char *put_number(char *to, uint64_t number)
{
	char digits[20];
	int n = 0;

	do
		digits[n++] = (char)('0' + number % 10);
	while (number /= 10);
	while (n)
		*to++ = digits[--n];
	return to;
}

static const char *type_of(const struct http *http)
{
	const char *suffix = http->status < 300 ? strrchr(http->path, '.') : ".txt";

	for (unsigned int i = 0; suffix && i < sizeof(types) / sizeof(*types); i++)
		if (!strcmp(suffix, types[i].suffix))
			return types[i].type;
	return "application/octet-stream";
}

/* Writes the head, and the text of an error, to end where the body begins. */
static void put_head(struct http *http, uint64_t size, uint64_t body)
{
	char head[HTTP_HEAD_MAX], *to = stpcpy(head, "HTTP/1.1 ");
	bool error = http->status >= 400;
	unsigned int i = 0;

	while (lines[i].status != http->status && i + 1 < sizeof(lines) / sizeof(*lines))
		i++;
	to = stpcpy(stpcpy(to, lines[i].line), date);
	to = stpcpy(stpcpy(to, "Content-Type: "), type_of(http));
	to = put_number(stpcpy(to, "\r\nContent-Length: "), error ? strlen(lines[i].line) : body);
	if (http->status == 206) {
		to = put_number(stpcpy(to, "\r\nContent-Range: bytes "), (uint64_t)http->offset);
		to = put_number(stpcpy(to, "-"), (uint64_t)http->offset + body - 1);
		to = put_number(stpcpy(to, "/"), size);
	} else if (http->status == 416) {
		to = put_number(stpcpy(to, "\r\nContent-Range: bytes */"), size);
	}
	if (!http->keep || http->old)
		to = stpcpy(to, http->keep ? "\r\nConnection: keep-alive" :
			    "\r\nConnection: close");
	to = stpcpy(to, "\r\n\r\n");
	if (error && !http->head)
		to = stpcpy(to, lines[i].line);
	http->out_bytes = (size_t)(to - head);
	http->out = memcpy(http->before + HTTP_HEAD_MAX - http->out_bytes, head, http->out_bytes);
}

/* Chooses the bytes of a range; nothing else is sent than these. Returns their number. */
static uint64_t limit(struct http *http, int64_t size)
{
	int64_t first = http->first, last = http->last;

	if (first < 0)
		first = size + first > 0 ? size + first : 0;
	if (first >= size) {
		http->status = 416;
		return 0;
	}
	http->status = 206;
	http->offset = first;
	http->rest = (uint64_t)((last < size ? last + 1 : size) - first);
	return http->rest;
}

void http_answer(struct http *http, int64_t file, const struct stat *stat, int64_t read)
{
	uint64_t size = 0, body = 0;

	if (http->status == 200) {
		if (file < 0)
			http->status = status_of(file);
		else if (!S_ISREG(stat->st_mode))
			http->status = 404;
		else if (http_wants_body(http) && read < 0)
			http->status = 500;
		else
			size = body = (uint64_t)stat->st_size;
	}
	if (http->status == 200 && http->ranged)
		body = limit(http, stat->st_size);
	if (http->status == 200 && http_wants_body(http)) {
		/* A file may have grown or shrunk since: all that was read is sent. */
		if (read < HTTP_BODY_MAX || size < HTTP_BODY_MAX)
			size = body = (uint64_t)read;
		http->offset = read;
		http->rest = body - (uint64_t)read;
	}
	put_head(http, size, body);
	if (http->status == 200 && http_wants_body(http))
		http->out_bytes += (size_t)read;
}

void http_accepted(struct http_accepts *accepts, unsigned int taken)
{
	if (taken < accepts->n) {
		/* Once or twice these may be the rest of many, or come while others still do. */
		if (accepts->most < taken)
			accepts->most = taken;
		if (++accepts->fewer < 3)
			return;
		accepts->n = accepts->most ? accepts->most : 1;
		accepts->patience = 16;
	} else if (++accepts->full < accepts->patience) {
		accepts->fewer = accepts->most = 0;
		return;
	} else if (accepts->n < HTTP_ACCEPTS_MAX) {
		accepts->n = 2 * accepts->n < HTTP_ACCEPTS_MAX ? 2 * accepts->n : HTTP_ACCEPTS_MAX;
	}
	accepts->full = accepts->fewer = accepts->most = 0;
}
