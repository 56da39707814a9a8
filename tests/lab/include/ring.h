/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Drives the module by the raw interface of <linux/trapless.h>, without the library. It owns a
 * test's ring and its workers, and checks only that their set-up succeeds.
 */
#ifndef TL_TEST_RING_H
#define TL_TEST_RING_H

#include <linux/trapless.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "check.h"

struct ring {
	int fd;
	unsigned int entries;
	unsigned int next;		/* worker rings: position of the next index in submit[] */
	struct tl_request *requests;
	uint32_t *submit;
};

static inline int device_open(void)
{
	long fd = sys(SYS_openat, AT_FDCWD, TL_DEVICE, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		FAIL("open %s: %s", TL_DEVICE, strerror((int)-fd));
	return (int)fd;
}

static inline long device_setup(int fd, unsigned int entries, unsigned int flags,
				unsigned int spin_us)
{
	struct tl_setup setup = {
		.size = sizeof(setup), .flags = flags, .entries = entries, .spin_us = spin_us,
	};

	return sys(SYS_ioctl, fd, TL_IOC_SETUP, &setup);
}

static inline void *device_map(int fd, unsigned int entries)
{
	return (void *)sys(SYS_mmap, NULL, TL_RING_BYTES(entries), PROT_READ | PROT_WRITE,
			   MAP_SHARED, fd, 0);
}

static inline bool is_error(const void *address)
{
	return (unsigned long)address >= -4095UL;
}

static inline struct ring ring_open_spin(unsigned int entries, unsigned int flags,
					 unsigned int spin_us)
{
	struct ring ring = { .fd = device_open(), .entries = entries };
	void *map;

	CHECK_EQ(device_setup(ring.fd, entries, flags, spin_us), 0);
	map = device_map(ring.fd, entries);
	if (is_error(map))
		FAIL("mmap of a ring of %u: %s", entries, strerror((int)-(long)map));
	ring.requests = map;
	ring.submit = (uint32_t *)((char *)map + TL_RING_SUBMIT_OFFSET(entries));
	return ring;
}

static inline struct ring ring_open(unsigned int entries)
{
	return ring_open_spin(entries, 0, 0);
}

static inline struct ring worker_ring_open(unsigned int entries)
{
	return ring_open_spin(entries, TL_SETUP_WORKERS, 0);
}

static inline void ring_close(struct ring *ring)
{
	CHECK_EQ(sys(SYS_munmap, ring->requests, TL_RING_BYTES(ring->entries)), 0);
	CHECK_EQ(sys(SYS_close, ring->fd), 0);
}

static inline void ring_put6(struct ring *ring, unsigned int slot, uint32_t nr, long a0, long a1,
			     long a2, long a3, long a4, long a5)
{
	struct tl_request *request = &ring->requests[slot & (ring->entries - 1)];
	const long args[6] = { a0, a1, a2, a3, a4, a5 };

	request->nr = nr;
	for (int i = 0; i < 6; i++)
		request->args[i] = (uint64_t)args[i];
	request->result = 0x5eed;	/* no call of the tests returns this */
	__atomic_store_n(&request->state, TL_SUBMITTED, __ATOMIC_RELEASE);
}

/* ring_put(ring, slot, nr, up to six arguments) */
#define RING_PAD(ring, slot, nr, a0, a1, a2, a3, a4, a5, ...)			\
	ring_put6(ring, slot, (uint32_t)(nr), (long)(a0), (long)(a1), (long)(a2),	\
		  (long)(a3), (long)(a4), (long)(a5))
#define ring_put(ring, slot, ...) RING_PAD(ring, slot, __VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

/* A request that enters `into` for a batch of n requests. */
static inline void ring_put_entry(struct ring *ring, unsigned int slot, const struct ring *into,
				  unsigned int first, unsigned int n)
{
	ring_put(ring, slot, SYS_lseek, into->fd, TL_ENTER_OFFSET, TL_ENTER_BATCH,
		 &into->requests[first], n);
}

static inline unsigned int ring_state(const struct ring *ring, unsigned int slot)
{
	return __atomic_load_n(&ring->requests[slot].state, __ATOMIC_ACQUIRE);
}

static inline long ring_result(const struct ring *ring, unsigned int slot)
{
	return ring->requests[slot].result;
}

/* An entry by this descriptor into the ring at this address. */
static inline long enter_at(int fd, const void *address, long argument, int kind)
{
	return sys(SYS_lseek, fd, TL_ENTER_OFFSET,
		   kind == TL_ENTER_BATCH ? TL_ENTER_BATCH : TL_ENTER_OTHER, address, argument,
		   kind);
}

/* Counts of a notify and a wait come without what marks them as the module's. */
static inline long enter(const struct ring *ring, long argument, int kind)
{
	long result = enter_at(ring->fd, ring->requests, argument, kind);

	if (result < 0 || (kind != TL_ENTER_NOTIFY && kind != TL_ENTER_WAIT))
		return result;
	return result >= TL_ANSWER ? result - TL_ANSWER : -EPROTO;
}

static inline long ring_batch(const struct ring *ring, unsigned int first, unsigned int n)
{
	return enter_at(ring->fd, &ring->requests[first], n, TL_ENTER_BATCH);
}

/* TL_IOC_ENTER, TL_IOC_EXIT, TL_IOC_WAKE or TL_IOC_RING. */
static inline long ring_ioctl(const struct ring *ring, unsigned long command)
{
	return sys(SYS_ioctl, ring->fd, command, ring->requests);
}

static inline struct tl_stats ring_stats(const struct ring *ring)
{
	struct tl_stats stats = { .size = sizeof(stats) };

	CHECK_EQ(sys(SYS_ioctl, ring->fd, TL_IOC_STATS, &stats), 0);
	return stats;
}

#define CHECK_DONE(ring, slot, want) do {					\
	CHECK_EQ(ring_state(ring, slot), TL_DONE);				\
	CHECK_EQ(ring_result(ring, slot), want);				\
} while (0)

static inline long batch_one(struct ring *ring)
{
	CHECK_EQ(ring_batch(ring, 0, 1), 1);
	CHECK_EQ(ring_state(ring, 0), TL_DONE);
	return ring_result(ring, 0);
}

/* batch_call(ring, nr, up to six arguments): one call by a batch of one; its result. */
#define batch_call(ring, ...) (ring_put(ring, 0, __VA_ARGS__), batch_one(ring))

/* ---- Worker rings ------------------------------------------------------------------------ */

/* Names a slot as the next to be served; a notify or wait makes it visible. */
static inline void ring_submit(struct ring *ring, uint32_t slot)
{
	__atomic_store_n(&ring->submit[ring->next++ & (ring->entries - 1)], slot,
			 __ATOMIC_RELEASE);
}

/* ring_queue(ring, slot, nr, up to six arguments): fills in a slot and submits it. */
#define ring_queue(ring, slot, ...) do {					\
	ring_put(ring, slot, __VA_ARGS__);					\
	ring_submit(ring, slot);						\
} while (0)

static inline long ring_notify(const struct ring *ring, unsigned int n)
{
	return enter(ring, (long)n, TL_ENTER_NOTIFY);
}

static inline long ring_wait(const struct ring *ring, unsigned int n, unsigned int left)
{
	return enter(ring, TL_WAIT(n, left), TL_ENTER_WAIT);
}

struct worker {
	pthread_t thread;
	struct ring *ring;
	bool signals;			/* leave signals unblocked */
	bool again;			/* enter again after a signal */
	pid_t tid;			/* valid once nonzero */
	long result;			/* what the last enter returned; valid after worker_join */
};

static inline void *worker_main(void *arg)
{
	struct worker *worker = arg;
	sigset_t all;

	if (!worker->signals) {
		sigfillset(&all);
		pthread_sigmask(SIG_BLOCK, &all, NULL);
	}
	__atomic_store_n(&worker->tid, (pid_t)sys(SYS_gettid), __ATOMIC_RELEASE);
	do
		worker->result = ring_ioctl(worker->ring, TL_IOC_ENTER);
	while (worker->again && worker->result == -EINTR);
	return NULL;
}

/* Starts a thread that enters the ring; returns when it is about to. */
static inline void worker_start(struct worker *worker, struct ring *ring)
{
	worker->ring = ring;
	worker->tid = 0;
	CHECK_EQ(pthread_create(&worker->thread, NULL, worker_main, worker), 0);
	while (!__atomic_load_n(&worker->tid, __ATOMIC_ACQUIRE))
		sched_yield();
}

static inline void worker_join(struct worker *worker)
{
	CHECK_EQ(pthread_join(worker->thread, NULL), 0);
}

/* Makes the workers return and waits for them. */
static inline void workers_end(struct ring *ring, struct worker *workers, unsigned int n)
{
	CHECK_EQ(ring_ioctl(ring, TL_IOC_EXIT), 0);
	for (unsigned int i = 0; i < n; i++)
		worker_join(&workers[i]);
}

/* ---- A thread that blocks in the module -------------------------------------------------- */

struct caller {
	pthread_t thread;
	const struct ring *ring;
	long argument;			/* of enter() */
	int kind;
	pid_t tid;
	long result;			/* of enter(); valid once `returned` */
	bool returned;
};

static inline void *caller_main(void *arg)
{
	struct caller *caller = arg;

	__atomic_store_n(&caller->tid, (pid_t)sys(SYS_gettid), __ATOMIC_RELEASE);
	caller->result = enter(caller->ring, caller->argument, caller->kind);
	__atomic_store_n(&caller->returned, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Starts a thread that enters the module; returns when it sleeps there. */
static inline void caller_start(struct caller *caller, const struct ring *ring, long argument,
				int kind)
{
	*caller = (struct caller){ .ring = ring, .argument = argument, .kind = kind };
	CHECK_EQ(pthread_create(&caller->thread, NULL, caller_main, caller), 0);
	while (!__atomic_load_n(&caller->tid, __ATOMIC_ACQUIRE))
		sched_yield();
	wait_asleep(caller->tid);
}

static inline long caller_join(struct caller *caller)
{
	CHECK_EQ(pthread_join(caller->thread, NULL), 0);
	return caller->result;
}

/* Waits until a slot is done, without TL_ENTER_WAIT. */
static inline void wait_done(const struct ring *ring, unsigned int slot)
{
	WAIT_UNTIL(ring_state(ring, slot) == TL_DONE, "slot %u is in state %u after %d ms", slot,
		   ring_state(ring, slot), WAIT_MS);
}

#endif /* TL_TEST_RING_H */
