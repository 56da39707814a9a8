// SPDX-License-Identifier: GPL-2.0-only
/*
 * The subjects whose number of calls nobody knows before: copy a file until its end, and accept
 * connections until none waits. It owns the file, the connections and the checks of both. Only
 * plain calls and programs make such a loop: a batch would have to guess.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "bench.h"
#include "measure.h"
#include "traps.h"

/* ---- Copy a file -------------------------------------------------------------------------- */

static char byte_at(unsigned int at)
{
	return (char)(1 + (at + at / 4096 * 13) % 251);
}

static int open_copy(const char *directory, const char *name)
{
	char path[NAME_BYTES];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		measure_fail("%s: %s", path, strerror(errno));
	return fd;
}

static void create_copy(struct bench *bench, const char *directory)
{
	bench->from = open_copy(directory, "from");
	bench->to = open_copy(directory, "to");
	for (unsigned int at = 0; at < COPY_BYTES; at += sizeof(bench->block)) {
		for (unsigned int i = 0; i < sizeof(bench->block); i++)
			bench->block[i] = byte_at(at + i);
		if (write(bench->from, bench->block, sizeof(bench->block)) !=
		    sizeof(bench->block))
			measure_fail("a file of %u bytes: %s", COPY_BYTES, strerror(errno));
	}
}

/* The blocks of the copy stay, so that no run allocates any. */
static void prepare_copy(struct bench *bench, unsigned int n)
{
	static const char none[4096];

	(void)n;
	for (unsigned int at = 0; at < COPY_BYTES; at += sizeof(none))
		if (pwrite(bench->to, none, sizeof(none), at) != sizeof(none))
			measure_fail("a copy of %u bytes: %s", COPY_BYTES, strerror(errno));
	if (lseek(bench->from, 0, SEEK_SET) || lseek(bench->to, 0, SEEK_SET))
		measure_fail("lseek: %s", strerror(errno));
}

static void check_copy(struct bench *bench, unsigned int n, const char *mechanism)
{
	const char *bytes = mmap(NULL, COPY_BYTES, PROT_READ, MAP_SHARED, bench->to, 0);
	struct stat stat;

	if (bytes == MAP_FAILED || fstat(bench->to, &stat))
		measure_fail("the copy: %s", strerror(errno));
	if (stat.st_size != COPY_BYTES)
		measure_fail("copy by %s, %u KiB a step: %ld bytes", mechanism, n,
			     (long)stat.st_size);
	for (unsigned int at = 0; at < COPY_BYTES; at++)
		if (bytes[at] != byte_at(at))
			measure_fail("copy by %s, %u KiB a step: byte %u is wrong", mechanism, n,
				     at);
	munmap((void *)bytes, COPY_BYTES);
}

static unsigned int one(unsigned int n)
{
	(void)n;
	return 1;
}

static void copy_plain(void *arg)
{
	struct run *run = arg;
	struct bench *bench = run->bench;
	long got, put, copied = 0;

	for (;;) {
		got = trap_fast3(SYS_read, (uint64_t)bench->from, (uintptr_t)bench->block,
				 run->n << 10);
		run->calls++;
		if (got <= 0)
			break;
		put = trap_fast3(SYS_write, (uint64_t)bench->to, (uintptr_t)bench->block,
				 (uint64_t)got);
		run->calls++;
		run->bad |= (unsigned long)(put ^ got);
		copied += put;
	}
	run->bad |= (unsigned long)got | (unsigned long)(copied ^ COPY_BYTES);
	run->crossings = run->calls;
}

static void copy_program(void *arg)
{
	struct run *run = arg;
	struct bench *bench = run->bench;
	struct tl_batch *batch = bench->batch;
	unsigned int get, put;

	get = (unsigned int)TL_ADD(batch, SYS_read, bench->from, bench->block, run->n << 10);
	put = (unsigned int)TL_ADD(batch, SYS_write | TL_RESULT(2), bench->to, bench->block, get);
	tl_batch_jump(batch, put, TL_IF_POSITIVE, get);
	run->bad |= (unsigned long)tl_batch_flush(batch) ^ 2;
	/* The last read found the end, and the last write had nothing to write. */
	run->bad |= (unsigned long)tl_batch_result(batch, get);
	run->bad |= (unsigned long)tl_batch_result(batch, put);
}

const struct subject_row copy_row = {
	.name = "copy", .create = create_copy, .prepare = prepare_copy, .check = check_copy,
	.operations = one, .fixed = true, .sizes = { 4, 16, 64 },
	.runners = { [PLAIN] = copy_plain, [PROGRAM] = copy_program },
};

/* ---- Accept connections ------------------------------------------------------------------- */

static const struct sockaddr_un address = {
	.sun_family = AF_UNIX, .sun_path = "\0trapless-programs",
};
#define ADDRESS_BYTES (offsetof(struct sockaddr_un, sun_path) + sizeof("\0trapless-programs") - 1)

static void create_listener(struct bench *bench, const char *directory)
{
	(void)directory;
	bench->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (bench->listener < 0 ||
	    bind(bench->listener, (const struct sockaddr *)&address, ADDRESS_BYTES) ||
	    listen(bench->listener, CONNECTIONS_MAX))
		measure_fail("a listening socket: %s", strerror(errno));
}

static void prepare_clients(struct bench *bench, unsigned int n)
{
	memset(bench->accepted, 0, sizeof(bench->accepted));
	for (unsigned int i = 0; i < n; i++) {
		bench->clients[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (bench->clients[i] < 0 ||
		    connect(bench->clients[i], (const struct sockaddr *)&address, ADDRESS_BYTES))
			measure_fail("connection %u: %s", i, strerror(errno));
	}
}

/* Each connection is open at both ends, and in the order in which it was made. */
static void check_clients(struct bench *bench, unsigned int n, const char *mechanism)
{
	for (unsigned int i = 0; i < n; i++) {
		int accepted = (int)bench->accepted[i];
		unsigned int got = n;

		if (write(bench->clients[i], &i, sizeof(i)) != sizeof(i) ||
		    read(accepted, &got, sizeof(got)) != sizeof(got) || got != i)
			measure_fail("accept by %s: connection %u of %u is not there", mechanism, i,
				     n);
		close(accepted);
		close(bench->clients[i]);
	}
	if (bench->accepted[n])
		measure_fail("accept by %s: more than %u connections", mechanism, n);
}

static void accept_plain(void *arg)
{
	struct run *run = arg;
	struct bench *bench = run->bench;
	unsigned int count = 0;
	long fd;

	for (;;) {
		fd = trap_fast4(SYS_accept4, (uint64_t)bench->listener, 0, 0, SOCK_CLOEXEC);
		run->calls++;
		if (fd < 0)
			break;
		bench->accepted[count++] = fd;
	}
	run->bad |= (unsigned long)(fd ^ -EAGAIN) | (count ^ run->n);
	run->crossings = run->calls;
}

static void accept_program(void *arg)
{
	struct run *run = arg;
	struct bench *bench = run->bench;
	struct tl_batch *batch = bench->batch;
	unsigned int get, next;

	bench->cursor = bench->accepted;
	get = (unsigned int)TL_ADD(batch, SYS_accept4, bench->listener, 0, 0, SOCK_CLOEXEC);
	TL_ADD(batch, TL_NR_STORE | TL_WORD64(0) | TL_RESULT(1), &bench->cursor, get);
	next = (unsigned int)TL_ADD(batch, TL_NR_INCREASE, &bench->cursor, sizeof(int64_t));
	tl_batch_jump(batch, get, TL_IF_ERROR, tl_batch_next(batch));
	tl_batch_jump(batch, next, TL_IF_ALWAYS, get);
	run->bad |= (unsigned long)tl_batch_flush(batch) ^ 3;
	run->bad |= (unsigned long)(tl_batch_result(batch, get) ^ -EAGAIN);
	run->bad |= (unsigned long)(bench->cursor - bench->accepted) ^ run->n;
}

static unsigned int connections_of(unsigned int n)
{
	return n;
}

const struct subject_row accept_row = {
	.name = "accept", .create = create_listener, .prepare = prepare_clients,
	.check = check_clients, .operations = connections_of, .fixed = true, .sizes = { 1, 16 },
	.runners = { [PLAIN] = accept_plain, [PROGRAM] = accept_program },
};
