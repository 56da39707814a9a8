// SPDX-License-Identifier: GPL-2.0-only
/*
 * See random_loads.h. measure_random() draws the calls and their order from one seed, so that every
 * order, and every run, has the same calls.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../kmod/evaluation.h"
#include "random_loads.h"
#include "measure.h"

#define STRIDE_LOG2 7u
#define SEED 20041u

#define FILES 8u
#define FILE_BYTES 16384u
#define READ_BYTES 4096u
#define PEERS 4u		/* sockets, events and what awaits them */
#define MESSAGE_BYTES 64u

static int places[OBJECTS_MAX];

static int files[FILES], sockets[PEERS][2], events[PEERS], awaits[PEERS];
static char names[FILES][32];
static char pages[FILES][READ_BYTES] __attribute__((aligned(4096)));
static char messages[PEERS][MESSAGE_BYTES] __attribute__((aligned(64)));
static struct stat stats[FILES] __attribute__((aligned(64)));
static struct epoll_event told[PEERS] __attribute__((aligned(64)));
static uint64_t one = 1;

static unsigned int draw(unsigned int below)
{
	return (unsigned int)((measure_random() >> 33) % below);
}

static uint64_t address(const void *memory)
{
	return (uint64_t)(uintptr_t)memory;
}

struct call *calls_new(unsigned int count)
{
	struct call *calls = calloc(count, sizeof(*calls));

	if (!calls)
		measure_fail("no memory for %u calls", count);
	return calls;
}

/* ---- Order -------------------------------------------------------------------------------- */

static int compare(const void *one_call, const void *other_call)
{
	const struct call *a = one_call, *b = other_call;

	if (a->nr != b->nr)
		return a->nr < b->nr ? -1 : 1;
	if (a->args[0] != b->args[0])
		return a->args[0] < b->args[0] ? -1 : 1;
	return 0;
}

/* Insertion: stable, and short stretches. */
static void sort_stretch(struct call *calls, unsigned int count)
{
	for (unsigned int i = 1; i < count; i++) {
		struct call call = calls[i];
		unsigned int to = i;

		for (; to && compare(&calls[to - 1], &call) > 0; to--)
			calls[to] = calls[to - 1];
		calls[to] = call;
	}
}

void calls_sort(struct call *calls, unsigned int count, unsigned int n)
{
	for (unsigned int first = 0; first < count; first += n) {
		unsigned int from = first;

		for (unsigned int i = first + 1; i <= first + n; i++) {
			if (i < first + n && !calls[i].after_barrier)
				continue;
			calls[from].after_barrier = false;
			sort_stretch(&calls[from], i - from);
			calls[from].after_barrier = from != first;
			from = i;
		}
	}
}

/* ---- The evaluation function -------------------------------------------------------------- */

/* Each place begins on a page of its own; where exactly, objects_fill() says. */
void objects_open(unsigned int objects, unsigned long width)
{
	if (!objects || objects * width > EVALUATION_WIDTH_MAX)
		measure_fail("%u places of %lu bytes: at least one, and %lu bytes in all", objects,
			     width, EVALUATION_WIDTH_MAX);
	for (unsigned int i = 0; i < objects; i++) {
		places[i] = open("/dev/" EVALUATION_DEVICE, O_RDONLY | O_CLOEXEC);
		if (places[i] < 0)
			measure_fail("/dev/" EVALUATION_DEVICE ": %s; insert hierarchy.ko first",
				     strerror(errno));
		if (lseek(places[i], (long)(i * width), EVALUATION_PLACE) < 0 ||
		    lseek(places[i], EVALUATION(width, STRIDE_LOG2), 0) < 0)
			measure_fail("the kernel's array has less than %lu bytes: insert "
				     "hierarchy.ko with bytes=%lu", (i + 1) * width,
				     objects * width);
	}
}

static int64_t expected(unsigned long from, unsigned long width)
{
	int64_t sum = 0;

	for (unsigned long at = 0; at < width; at += 1ul << STRIDE_LOG2)
		sum += evaluation_byte(from + at);
	return sum;
}

void objects_fill(struct call *calls, unsigned int count, unsigned int objects,
		  unsigned long width)
{
	int64_t sums[OBJECTS_MAX];

	for (unsigned int i = 0; i < objects; i++) {
		if (lseek(places[i], (long)(i * width), EVALUATION_PLACE))
			measure_fail("place %u: %s", i, strerror(errno));
		sums[i] = expected(i * width, width);
	}
	measure_seed(SEED);
	for (unsigned int i = 0; i < count; i++) {
		unsigned int place = draw(objects);

		calls[i] = (struct call){
			.nr = SYS_lseek, .result = sums[place],
			.args = { (uint64_t)places[place],
				  (uint64_t)EVALUATION(width, STRIDE_LOG2) },
		};
	}
}

/* ---- A server's calls ---------------------------------------------------------------------- */

static int must(int result, const char *what)
{
	if (result < 0)
		measure_fail("%s: %s", what, strerror(errno));
	return result;
}

void mix_open(void)
{
	struct epoll_event wanted = { .events = EPOLLIN };

	for (unsigned int i = 0; i < FILES; i++) {
		snprintf(names[i], sizeof(names[i]), "/tmp/reorder-%u", i);
		files[i] = must(open(names[i], O_RDWR | O_CREAT | O_TRUNC, 0600), names[i]);
		memset(pages[i], 'a' + (int)i, READ_BYTES);
		for (unsigned int at = 0; at < FILE_BYTES; at += READ_BYTES)
			must((int)pwrite(files[i], pages[i], READ_BYTES, at), names[i]);
	}
	for (unsigned int i = 0; i < PEERS; i++) {
		must(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets[i]), "socketpair");
		events[i] = must(eventfd(1, 0), "eventfd");
		awaits[i] = must(epoll_create1(0), "epoll_create1");
		must(epoll_ctl(awaits[i], EPOLL_CTL_ADD, events[i], &wanted), "epoll_ctl");
	}
}

/* One of ten: four reads, two stats by name, and one each of the others. */
static struct call any_call(void)
{
	unsigned int kind = draw(10), file = draw(FILES), peer = draw(PEERS);

	switch (kind) {
	case 0:
		return (struct call){ SYS_sendto, false, { (uint64_t)sockets[peer][0],
			address(messages[peer]), MESSAGE_BYTES, 0 }, MESSAGE_BYTES };
	case 1:
		return (struct call){ SYS_epoll_wait, false, { (uint64_t)awaits[peer],
			address(&told[peer]), 1, 0 }, 1 };
	case 2:
		return (struct call){ SYS_write, false, { (uint64_t)events[peer], address(&one),
			sizeof(one) }, sizeof(one) };
	case 3:
		return (struct call){ SYS_fstat, false, { (uint64_t)files[file],
			address(&stats[file]) }, 0 };
	case 4:
	case 5:
		return (struct call){ SYS_stat, false, { address(names[file]),
			address(&stats[file]) }, 0 };
	default:
		return (struct call){ SYS_pread64, false, { (uint64_t)files[file],
			address(pages[file]), READ_BYTES,
			READ_BYTES * draw(FILE_BYTES / READ_BYTES) }, READ_BYTES };
	}
}

/* Data that was sent in a batch is received at its end, the oldest first. */
static void receive(struct call *call, const struct call *batch, unsigned int sent)
{
	call->after_barrier = true;
	for (unsigned int i = 0; sent; i++) {
		if (batch[i].nr != SYS_sendto)
			continue;
		for (unsigned int peer = 0; peer < PEERS; peer++)
			if (batch[i].args[0] == (uint64_t)sockets[peer][0])
				*call = (struct call){ SYS_recvfrom, call->after_barrier,
					{ (uint64_t)sockets[peer][1], address(messages[peer]),
					  MESSAGE_BYTES, 0 }, MESSAGE_BYTES };
		call++;
		sent--;
	}
}

void mix_fill(struct call *calls, unsigned int count, unsigned int n)
{
	measure_seed(SEED);
	for (struct call *batch = calls; batch != calls + count; batch += n) {
		unsigned int sent = 0, i = 0;

		while (i + sent < n) {
			struct call call = any_call();

			/* A send takes a second place at the end, for its receive. */
			if (call.nr == SYS_sendto && i + ++sent == n) {
				sent--;
				continue;
			}
			batch[i++] = call;
		}
		if (sent)
			receive(&batch[n - sent], batch, sent);
	}
}
