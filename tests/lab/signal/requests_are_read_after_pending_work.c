// SPDX-License-Identifier: GPL-2.0-only
/*
 * Work that a call leaves to its thread is done before the next request is read, as it is before a
 * plain call: a word that io_uring's completion writes, a word that could not be read before a file
 * was released, and a request that such work writes anew. The same holds for workers' programs.
 */
#include <linux/userfaultfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "ring.h"
#include "uring.h"

#define BYTES 4096ul

static int announced[2], source[2];

static struct tl_program *program_of(const struct ring *ring)
{
	return (void *)(ring->requests + ring->entries);
}

static void run(const struct ring *ring, unsigned int steps)
{
	*program_of(ring) = (struct tl_program){ .steps = 10 };
	CHECK_EQ(enter(ring, steps, TL_ENTER_PROGRAM), steps);
	CHECK_EQ(program_of(ring)->stopped, TL_STOPPED_END);
}

static void empty(void)
{
	char byte;

	CHECK_EQ(sys(SYS_read, announced[0], &byte, 1), 1);
}

static void completion_is_seen(struct ring *ring, struct uring *uring)
{
	uint32_t *tail = uring_word(uring, uring->parameters.cq_off.tail);
	unsigned int before = uring_completed(uring);
	uint64_t seen[2] = { 0 };

	uring_poll(uring, announced[0]);
	ring_put(ring, 0, SYS_write, announced[1], "x", 1);
	ring_put(ring, 1, TL_NR_STORE | TL_WORD32(1), &seen[0], tail);
	ring_put(ring, 2, TL_NR_STORE | TL_WORD32(1), &seen[1], tail);
	run(ring, 3);
	CHECK_EQ(seen[0], before + 1);
	CHECK_EQ(seen[1], before + 1);
	empty();

	/* The same word, by a step that is a call. */
	umask(0);
	uring_poll(uring, announced[0]);
	ring_put(ring, 0, SYS_write, announced[1], "x", 1);
	ring_put(ring, 1, SYS_umask | TL_WORD32(0), tail);
	ring_put(ring, 2, SYS_umask, 022);
	run(ring, 3);
	CHECK_DONE(ring, 2, before + 2);
	empty();
}

/* A request that is rewritten by work which the call before it has left. */
static void request_is_written_anew(struct ring *ring, struct uring *uring, bool is_program)
{
	static uint64_t word;
	const struct tl_request others[] = {
		{ .nr = SYS_getppid, .state = TL_SUBMITTED },
		{ .nr = TL_NR_STORE, .state = TL_SUBMITTED, .args = { (uintptr_t)&word, 9 } },
	};
	const uint32_t first[] = { TL_NR_STORE, SYS_getpid };

	for (unsigned int i = 0; i < (is_program ? 2 : 1); i++) {
		word = 0;
		CHECK_EQ(write(source[1], &others[i], sizeof(others[i])), sizeof(others[i]));
		ring_put(ring, 0, SYS_write, announced[1], "x", 1);
		ring_put(ring, 1, is_program ? first[i] : SYS_getpid, &word, 7);
		uring_receive_after_poll(uring, announced[0], source[0], &ring->requests[1],
					 sizeof(others[i]));
		if (is_program)
			run(ring, 2);
		else
			CHECK_EQ(ring_batch(ring, 0, 2), 2);
		CHECK_DONE(ring, 1, i ? 9 : getppid());
		CHECK_EQ(word, i ? 9 : 0);
		empty();
	}
}

/* Memory that can be neither read nor written (-EFAULT) as long as the descriptor is open. */
static char *held_page(int *descriptor)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_SIGBUS };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	char *page = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(page != MAP_FAILED);
	*descriptor = (int)sys(SYS_userfaultfd, O_CLOEXEC);
	if (*descriptor == -ENOSYS)
		return NULL;
	CHECK(*descriptor >= 0);
	MUST(ioctl(*descriptor, UFFDIO_API, &api));
	range.range = (struct uffdio_range){ .start = (uintptr_t)page, .len = BYTES };
	MUST(ioctl(*descriptor, UFFDIO_REGISTER, &range));
	return page;
}

static void put_held_program(struct ring *ring, char *page, int descriptor, uint64_t *seen)
{
	*seen = 7;
	ring_put(ring, 0, TL_NR_STORE | TL_WORD64(1), seen, page);
	ring_put(ring, 1, SYS_close, descriptor);
	ring_put(ring, 2, TL_NR_STORE | TL_WORD64(1), seen, page);
	ring_put(ring, 3, TL_NR_INCREASE, page, 5);
}

static void check_held_program(const struct ring *ring, const char *page, uint64_t seen)
{
	CHECK_DONE(ring, 0, -EFAULT);
	CHECK_DONE(ring, 1, 0);
	CHECK_DONE(ring, 2, 0);
	CHECK_DONE(ring, 3, 5);
	CHECK_EQ(seen, 0);
	CHECK_EQ(*(const uint64_t *)page, 5);
}

static void released_file_is_seen(struct ring *ring)
{
	static struct tl_request requests[4];
	struct ring memory = { .requests = requests, .entries = 4 };
	struct ring workers = worker_ring_open(4);
	struct worker worker = { 0 };
	uint64_t seen;
	int descriptor;
	char *page = held_page(&descriptor);

	if (!page) {
		printf("no userfaultfd here: one half is not tested\n");
		return;
	}
	put_held_program(ring, page, descriptor, &seen);
	run(ring, 4);
	check_held_program(ring, page, seen);

	page = held_page(&descriptor);
	put_held_program(&memory, page, descriptor, &seen);
	worker_start(&worker, &workers);
	ring_queue(&workers, 0, TL_NR_PROGRAM, requests, 4, 10, 0);
	CHECK_EQ(ring_wait(&workers, 1, 0), 0);
	CHECK_DONE(&workers, 0, 5);
	check_held_program(&memory, page, seen);
	workers_end(&workers, &worker, 1);
}

int main(void)
{
	struct uring uring = uring_open();
	struct ring ring = ring_open(4);

	MUST(pipe(announced));
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, source));
	completion_is_seen(&ring, &uring);
	request_is_written_anew(&ring, &uring, false);
	request_is_written_anew(&ring, &uring, true);
	released_file_is_seen(&ring);
	return 0;
}
