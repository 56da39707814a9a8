/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory shared between the guest's init and the launcher (trapless/vm/channel.py).
 *
 * This file owns the layout: a header page and three byte rings in the second BAR of an
 * ivshmem-plain device, which is ordinary memory on both sides. The second serial port carries only
 * doorbells: a byte means "the rings or the header have changed".
 *
 * Concurrency: head and producer_closed of a ring are written by its producer alone, tail and
 * consumer_closed by its consumer alone. The release store of head or tail pairs with the other
 * side's load of the same field (x86 loads are acquires; channel.py relies on that).
 */
#ifndef TRAPLESS_GUEST_CHANNEL_H
#define TRAPLESS_GUEST_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CHANNEL_BYTES (8u << 20)
#define CHANNEL_MAGIC 0x7472706cu
#define CHANNEL_ERROR_BYTES 1024

enum channel_phase {
	PHASE_FIRMWARE = 0,	/* the launcher's initial value: init has not run yet */
	PHASE_INIT = 1,		/* init is running and prepares the guest */
	PHASE_RUNNING = 2,	/* the command has been started */
	PHASE_DONE = 3,		/* the command has ended and all its output is in the rings */
	PHASE_FAILED = 4,	/* the guest could not be prepared: see error */
};

struct ring {
	uint64_t head;			/* bytes produced since boot */
	uint64_t tail;			/* bytes consumed since boot */
	uint32_t producer_closed;	/* nothing follows head */
	uint32_t consumer_closed;	/* nobody will read: the producer gets SIGPIPE */
	uint32_t offset;		/* of the data, from the start of the channel */
	uint32_t bytes;			/* of the data; a power of two */
	uint8_t padding[32];
};

struct channel {
	uint32_t magic;
	uint32_t phase;			/* enum channel_phase, written by the guest */
	int32_t status;			/* of the command as a shell reports it, at PHASE_DONE */
	int32_t switch_error;		/* errno, at PHASE_FAILED: it was not switched to ... */
	uint64_t calls[4];		/* ... supervisor mode; at PHASE_DONE, calls made there: */
					/* direct, worked, left, kernel */
	uint32_t refusal;		/* enum tl_refusal, with some values of switch_error */
	uint32_t reserved[3];
	struct ring input, output, errors;
	char error[CHANNEL_ERROR_BYTES];
};

_Static_assert(sizeof(struct ring) == 64, "channel.py repeats this layout");
_Static_assert(offsetof(struct channel, input) == 64, "channel.py repeats this layout");
_Static_assert(offsetof(struct channel, error) == 256, "channel.py repeats this layout");

/* Find and map the channel and open the doorbell. Returns 0 or -errno. */
int channel_open(void);
/* Descriptor that is readable when the launcher has rung; drain it with channel_answer(). */
int channel_doorbell(void);
void channel_answer(void);
struct channel *channel_header(void);
void channel_set_phase(enum channel_phase phase);

/* Free bytes of a ring we produce into; bytes waiting in a ring we consume. */
size_t ring_space(const struct ring *ring);
size_t ring_waiting(const struct ring *ring);
/* One read from fd into the ring, one write from the ring to fd. Return as read() and write(). */
ssize_t ring_fill(struct ring *ring, int fd);
ssize_t ring_drain(struct ring *ring, int fd);

#endif /* TRAPLESS_GUEST_CHANNEL_H */
