/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * uring.h - requests of io_uring that wait, by the raw interface: work for their thread that comes
 * at a moment which a test chooses. It owns the queues and skips the test where there are none.
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

	uring.fd = (int)sys(SYS_io_uring_setup, 1, &uring.parameters);
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
 * The request of the calling thread completes once the descriptor can be read from. There is room
 * for its completion: none of the earlier ones is of use any more.
 */
static inline void uring_poll(struct uring *uring, int fd)
{
	uint32_t *tail = uring_word(uring, uring->parameters.sq_off.tail);

	__atomic_store_n(uring_word(uring, uring->parameters.cq_off.head), uring_completed(uring),
			 __ATOMIC_RELEASE);
	uring->requests[0] = (struct io_uring_sqe){
		.opcode = IORING_OP_POLL_ADD, .fd = fd, .poll32_events = POLLIN,
	};
	*uring_word(uring, uring->parameters.sq_off.array) = 0;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	CHECK_EQ(sys(SYS_io_uring_enter, uring->fd, 1, 0, 0, NULL, 0), 1);
}

#endif /* TL_TEST_URING_H */
