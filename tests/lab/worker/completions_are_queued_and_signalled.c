// SPDX-License-Identifier: GPL-2.0-only
/*
 * The queue of completions by the raw interface: a place for each request that completes, none for
 * one that was canceled. The ring's descriptor is readable when a request has completed or a
 * canceled one was dropped since the requester has looked, when the ring is shut down, and when a
 * program says so; other rings are refused, a wait ends in time, and a requester that breaks every
 * rule harms nobody.
 */
#include <poll.h>

#include "ring.h"

#define ENTRIES 8u
#define BYTES (TL_RING_BYTES(ENTRIES) + TL_RING_COMPLETIONS_BYTES(ENTRIES))

static struct ring ring_with_completions(struct tl_completions **completions)
{
	struct ring ring = { .fd = device_open(), .entries = ENTRIES };
	void *map;

	CHECK_EQ(device_setup(ring.fd, ENTRIES, TL_SETUP_COMPLETIONS, 0), -EINVAL);
	CHECK_EQ(device_setup(ring.fd, ENTRIES, TL_SETUP_WORKERS | TL_SETUP_COMPLETIONS, 0), 0);
	CHECK(is_error(device_map(ring.fd, ENTRIES)));
	map = (void *)sys(SYS_mmap, NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, 0);
	CHECK(!is_error(map));
	ring.requests = map;
	ring.submit = (uint32_t *)((char *)map + TL_RING_SUBMIT_OFFSET(ENTRIES));
	*completions = (void *)((char *)map + TL_RING_COMPLETIONS_OFFSET(ENTRIES));
	return ring;
}

static bool is_readable(const struct ring *ring)
{
	struct pollfd poll_fd = { .fd = ring->fd, .events = POLLIN };

	return MUST(poll(&poll_fd, 1, 0)) == 1;
}

static void arm(struct tl_completions *completions)
{
	__atomic_store_n(&completions->armed, 1, __ATOMIC_SEQ_CST);
}

static void check_other_rings(const struct ring *ring)
{
	struct ring without = worker_ring_open(ENTRIES);

	CHECK_EQ(ring_ioctl(&without, TL_IOC_RING), 0);
	CHECK_EQ(ring_ioctl(&without, TL_IOC_WAKE), -EINVAL);
	CHECK(!is_readable(&without));
	for (unsigned int i = 0; i < 4; i++) {
		static const unsigned int commands[] = {
			TL_IOC_RING, TL_IOC_WAKE, TL_IOC_ENTER, TL_IOC_EXIT,
		};

		CHECK_EQ(sys(SYS_ioctl, ring->fd, commands[i], without.requests), -EINVAL);
		CHECK_EQ(sys(SYS_ioctl, ring->fd, commands[i], 0), -EINVAL);
	}
	CHECK_EQ(enter_at(ring->fd, without.requests, 0, TL_ENTER_NOTIFY), -EINVAL);
	CHECK_EQ(enter_at(ring->fd, without.requests, 0, TL_ENTER_WAIT), -EINVAL);
	CHECK_EQ(ring_ioctl(ring, TL_IOC_RING), 0);
	ring_close(&without);
}

static void *wait_by_poll(void *ring)
{
	struct pollfd poll_fd = { .fd = ((struct ring *)ring)->fd, .events = POLLIN };

	return (void *)(long)poll(&poll_fd, 1, WAIT_MS);
}

/* A thread that sleeps in poll(2) is woken. */
static void check_poll_ends(struct ring *ring, struct tl_completions *completions,
			    unsigned long command)
{
	pthread_t thread;
	void *polled;

	arm(completions);
	CHECK(!is_readable(ring));
	CHECK_EQ(pthread_create(&thread, NULL, wait_by_poll, ring), 0);
	sleep_ms(20);
	if (command == TL_IOC_WAKE)
		__atomic_store_n(&completions->armed, 0, __ATOMIC_SEQ_CST);
	CHECK_EQ(ring_ioctl(ring, command), 0);
	CHECK_EQ(pthread_join(thread, &polled), 0);
	CHECK_EQ((long)polled, 1);
	CHECK_EQ(completions->armed, 0);
	CHECK(is_readable(ring));
}

/* It is told to whoever sleeps in poll(2), and once: who arms later finds it by looking. */
static void check_exit_is_signalled(void)
{
	struct tl_completions *completions;
	struct ring ring = ring_with_completions(&completions);

	check_poll_ends(&ring, completions, TL_IOC_WAKE);
	check_poll_ends(&ring, completions, TL_IOC_EXIT);
	CHECK_EQ(ring_ioctl(&ring, TL_IOC_EXIT), 0);
	arm(completions);
	CHECK_EQ(ring_notify(&ring, 0), -ESHUTDOWN);
	CHECK(!is_readable(&ring));
	CHECK_EQ(sys(SYS_munmap, ring.requests, BYTES), 0);
	CHECK_EQ(sys(SYS_close, ring.fd), 0);
}

int main(void)
{
	struct tl_completions *completions;
	struct ring ring = ring_with_completions(&completions);
	uint32_t *slots = (uint32_t *)(completions + 1);
	struct worker worker = { 0 };

	check_other_rings(&ring);
	CHECK(is_readable(&ring));
	for (unsigned int slot = 0; slot < 4; slot++)
		ring_queue(&ring, slot, SYS_getppid);
	__atomic_store_n(&ring.requests[2].state, TL_CANCELED, __ATOMIC_SEQ_CST);
	arm(completions);
	CHECK(!is_readable(&ring));
	CHECK_EQ(ring_notify(&ring, 4), 4);
	CHECK_EQ(enter(&ring, TL_WAIT_US(0, 0, 20000), TL_ENTER_WAIT), -ETIME);
	CHECK_EQ(enter(&ring, TL_WAIT_US(0, 4, TL_WAIT_US_MAX), TL_ENTER_WAIT), 4);
	CHECK_EQ(enter(&ring, (long)(1ul << 63), TL_ENTER_WAIT), -EINVAL);
	worker_start(&worker, &ring);
	CHECK_EQ(enter(&ring, TL_WAIT_US(0, 0, TL_WAIT_US_MAX), TL_ENTER_WAIT), 0);
	CHECK_EQ(slots[0], 1);
	CHECK_EQ(slots[1], 2);
	CHECK_EQ(slots[2], 4);
	CHECK_EQ(slots[3], 0);
	CHECK_EQ(ring_state(&ring, 2), TL_FREE);
	CHECK_EQ(ring_stats(&ring).dropped, 1);
	CHECK_EQ(ring_stats(&ring).executed, 3);
	wait_asleep(worker.tid);
	CHECK_EQ(completions->armed, 0);
	CHECK(is_readable(&ring));

	ring_queue(&ring, 4, SYS_getppid);
	__atomic_store_n(&ring.requests[4].state, TL_CANCELED, __ATOMIC_SEQ_CST);
	arm(completions);
	CHECK_EQ(ring_wait(&ring, 1, 0), 0);
	wait_asleep(worker.tid);
	CHECK_EQ(slots[3], 0);
	CHECK(is_readable(&ring));

	/* Nobody takes the completions, and all of it is overwritten. */
	for (unsigned int round = 0; round < 100; round++) {
		for (unsigned int slot = 0; slot < ENTRIES; slot++)
			ring_queue(&ring, slot, SYS_getppid);
		memset(completions, 0xff, TL_RING_COMPLETIONS_BYTES(ENTRIES));
		CHECK_EQ(ring_wait(&ring, ENTRIES, 0), 0);
	}
	ring_queue(&ring, 0, SYS_getppid);
	CHECK_EQ(ring_wait(&ring, 1, 0), 0);
	workers_end(&ring, &worker, 1);
	CHECK_EQ(sys(SYS_munmap, ring.requests, BYTES), 0);
	CHECK_EQ(sys(SYS_close, ring.fd), 0);
	check_exit_is_signalled();
	return 0;
}
