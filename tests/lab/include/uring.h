/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Requests of io_uring that wait, by the raw interface: work for their thread that comes at a
 * moment which a test chooses. It owns the queues and skips the test where there are none.
 */
#ifndef TL_TEST_URING_H
#define TL_TEST_URING_H

#include <linux/io_uring.h>
#include <poll.h>
#include <sys/mman.h>

#include "check.h"

struct uring {
	int fd;
	struct io_uring_params parameters;
	char *queue;
	struct io_uring_sqe *requests;
};

static inline struct uring uring_open(void)
{
	struct uring uring = { 0 };

	uring.fd = (int)sys(SYS_io_uring_setup, 2, &uring.parameters);
	if (uring.fd == -ENOSYS || uring.fd == -EPERM)
		SKIP("no io_uring here: error %d", -uring.fd);
	CHECK(uring.fd >= 0);
	CHECK(uring.parameters.features & IORING_FEAT_SINGLE_MMAP);
	uring.queue = MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, uring.fd,
				IORING_OFF_SQ_RING));
	uring.requests = MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, uring.fd,
				   IORING_OFF_SQES));
	return uring;
}

static inline uint32_t *uring_word(const struct uring *uring, uint32_t offset)
{
	return (uint32_t *)(uring->queue + offset);
}

/* How many requests have completed. They complete as their thread does the work for it. */
static inline unsigned int uring_completed(const struct uring *uring)
{
	return __atomic_load_n(uring_word(uring, uring->parameters.cq_off.tail),
			       __ATOMIC_ACQUIRE);
}

/*
 * Submits the first requests of the queue. There is room for their completions: none of the earlier
 * ones is of use any more.
 */
static inline void uring_submit(struct uring *uring, unsigned int count)
{
	uint32_t *tail = uring_word(uring, uring->parameters.sq_off.tail);
	uint32_t *array = uring_word(uring, uring->parameters.sq_off.array);
	const uint32_t entries = uring->parameters.sq_entries;

	CHECK(count <= entries);
	__atomic_store_n(uring_word(uring, uring->parameters.cq_off.head), uring_completed(uring),
			 __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < count; i++)
		array[(*tail + i) & (entries - 1)] = i;
	__atomic_store_n(tail, *tail + count, __ATOMIC_RELEASE);
	CHECK_EQ(sys(SYS_io_uring_enter, uring->fd, count, 0, 0, NULL, 0), count);
}

/* The request of the calling thread completes once the descriptor can be read from. */
static inline void uring_poll(struct uring *uring, int fd)
{
	uring->requests[0] = (struct io_uring_sqe){
		.opcode = IORING_OP_POLL_ADD, .fd = fd, .poll32_events = POLLIN,
	};
	uring_submit(uring, 1);
}

/* The same, and then the calling thread closes another descriptor, in that work of its own. */
static inline void uring_close_after_poll(struct uring *uring, int fd, int closed)
{
	uring->requests[0] = (struct io_uring_sqe){
		.opcode = IORING_OP_POLL_ADD, .flags = IOSQE_IO_LINK, .fd = fd,
		.poll32_events = POLLIN,
	};
	uring->requests[1] = (struct io_uring_sqe){ .opcode = IORING_OP_CLOSE, .fd = closed };
	uring_submit(uring, 2);
}

/* The same, and then that work receives from a socket to any memory of the calling thread. */
static inline void uring_receive_after_poll(struct uring *uring, int fd, int from, void *to,
					 unsigned int bytes)
{
	uring->requests[0] = (struct io_uring_sqe){
		.opcode = IORING_OP_POLL_ADD, .flags = IOSQE_IO_LINK, .fd = fd,
		.poll32_events = POLLIN,
	};
	uring->requests[1] = (struct io_uring_sqe){
		.opcode = IORING_OP_RECV, .fd = from, .addr = (uintptr_t)to, .len = bytes,
	};
	uring_submit(uring, 2);
}

#endif /* TL_TEST_URING_H */
