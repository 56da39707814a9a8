/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * trapless.h - the binary interface between the Trapless module, the library and Python.
 *
 * This file owns every number and layout that crosses the user/kernel boundary. It owns no
 * behaviour. It is frozen by size and offset in all three users (kmod/main.c, tests/abi/,
 * trapless/abi.py); structures grow at their end, by `size`, and by flags. Reserved fields must
 * be zero.
 *
 * The shape of the thing
 * ----------------------
 *   fd = open("/dev/trapless", O_RDWR | O_CLOEXEC)
 *   ioctl(fd, TL_IOC_SETUP, &setup)            once: what kind of ring, how many requests
 *   mmap(NULL, TL_RING_BYTES(entries), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
 *   lseek(fd, TL_BATCH(first, n), TL_DOOR_BATCH)   one crossing, n system calls
 *
 * Why lseek: it is the shortest path from user space to a function of a driver that a stock
 * kernel has. It looks up the descriptor and calls llseek; no security hook, no notification,
 * no position lock for a character device. An empty ioctl costs about 250 instructions more.
 */
#ifndef _UAPI_LINUX_TRAPLESS_H
#define _UAPI_LINUX_TRAPLESS_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define TL_DEVICE "/dev/trapless"
#define TL_ABI_VERSION 1

/* Bounds: checked by the module and, for what runs without it, by the library. */
#define TL_ENTRIES_MAX 4096u	/* requests in one ring */
#define TL_SPIN_US_MAX 1000u	/* longest spin of a worker before it sleeps, microseconds */

/*
 * One request: exactly one cache line. The requester writes nr and args, then stores state =
 * TL_SUBMITTED with release; the executor writes result, then stores state = TL_DONE with
 * release; whoever reads the result loads state with acquire first. The module copies nr and
 * args once and never reads them again: rewriting a request while it runs changes nothing.
 */
struct tl_request {
	__u32 nr;	/* system-call number of the x86-64 table */
	__u32 state;	/* enum tl_state */
	__u64 args[6];	/* as in rdi, rsi, rdx, r10, r8, r9 */
	__s64 result;	/* what the call returned: a value or -errno */
};

enum tl_state {
	TL_FREE = 0,		/* the requester owns the slot */
	TL_SUBMITTED = 1,	/* filled in, not yet executed */
	TL_RUNNING = 2,		/* a worker has copied it and executes it (worker rings only) */
	TL_DONE = 3,		/* result is valid */
};

/*
 * The shared mapping: `entries` requests, then (used by worker rings only) `entries` indices.
 * On a worker ring the requester writes the slot number of its k-th request (k counts from 0
 * since set-up, modulo 2^32) to submit[k % entries] before it notifies. `entries` is a power of
 * two.
 */
#define TL_RING_REQUESTS_BYTES(entries) ((entries) * 64u)
#define TL_RING_SUBMIT_OFFSET(entries) TL_RING_REQUESTS_BYTES(entries)
#define TL_RING_BYTES(entries) \
	((((entries) * (64u + 4u)) + 4095u) & ~4095u)

/* ioctls. Type-less numbers 1 and 2 never reach a driver, hence full _IO codes. */
#define TL_IOC_MAGIC 0xE7

/* TL_SETUP_WORKERS: a ring served by worker threads; without it, a ring executed by batches. */
#define TL_SETUP_WORKERS (1u << 0)
#define TL_SETUP_FLAGS TL_SETUP_WORKERS

struct tl_setup {
	__u32 size;		/* in: sizeof(struct tl_setup) as the caller knows it */
	__u32 flags;		/* in: TL_SETUP_* */
	__u32 entries;		/* in: power of two, 1..TL_ENTRIES_MAX */
	__u32 spin_us;		/* in: how long an idle worker spins before it sleeps */
	__u64 reserved[2];	/* must be zero */
};

struct tl_info {
	__u32 size;		/* in: size the caller knows; out: bytes filled */
	__u32 abi;		/* out: TL_ABI_VERSION */
	__u32 entries_max;	/* out: TL_ENTRIES_MAX of the module */
	__u32 calls_allowed;	/* out: system calls of this kernel that may be batched */
	char version[32];	/* out: version of the module, NUL-terminated */
};

/* Kernel-side counts of one ring since set-up: the proof that every call was really made. */
struct tl_stats {
	__u32 size;		/* in: size the caller knows; out: bytes filled */
	__u32 reserved;
	__u64 crossings;	/* doors taken: batch, notify, wait, enter */
	__u64 executed;		/* requests whose system call was made */
	__u64 refused;		/* requests answered without a call: unknown or not allowed */
	__u64 interrupted;	/* batches and worker runs ended early by a signal */
	__u64 bypassed;		/* doors answered -EBUSY: the thread is traced or audited */
	__u64 sleeps;		/* times a worker went to sleep */
	__u64 wakeups;		/* times a notify had to wake a sleeping worker */
	__u64 dropped;		/* submitted slot numbers out of range or already running */
};

#define TL_IOC_INFO  _IOWR(TL_IOC_MAGIC, 0x01, struct tl_info)
#define TL_IOC_SETUP _IOW(TL_IOC_MAGIC, 0x02, struct tl_setup)
#define TL_IOC_STATS _IOWR(TL_IOC_MAGIC, 0x03, struct tl_stats)
#define TL_IOC_ENTER _IO(TL_IOC_MAGIC, 0x04)	/* become a worker (pscenter) */
#define TL_IOC_EXIT  _IO(TL_IOC_MAGIC, 0x05)	/* send all workers home (pscexit) */

/*
 * Doors: `whence` of lseek(fd, argument, whence). They return a count >= 0 or -errno:
 *   -EINVAL   no ring set up, wrong kind of ring, argument out of range
 *   -EPERM    the ring belongs to another process (the memory map differs)
 *   -EBUSY    the thread is traced, audited or dispatched: make the calls one by one
 *   -EDEADLK  a batch or a worker inside a batch
 *   -EAGAIN   notify: more than `entries` requests would be outstanding
 *   -ESHUTDOWN  the worker ring was shut down by TL_IOC_EXIT
 *   -EINTR    wait: a signal arrived first
 *
 * TL_DOOR_BATCH, argument TL_BATCH(first, n): execute requests first .. first+n-1 (modulo
 *   entries) in order; returns how many are complete. Fewer than n: a signal is pending; the
 *   request at first+count is untouched (still TL_SUBMITTED) and can be submitted again. A batch
 *   whose first call wants to be restarted is restarted by the kernel like a plain call.
 * TL_DOOR_NOTIFY, argument n: the next n entries of submit[] are valid; returns n at once.
 * TL_DOOR_WAIT, argument TL_WAIT(n, left): notify n, then sleep until at most `left` of all
 *   notified requests are unfinished; returns the number that is unfinished.
 */
#define TL_DOOR_BATCH 0
#define TL_DOOR_NOTIFY 1
#define TL_DOOR_WAIT 2

/* Both fit in 31 bits, so that a 32-bit lseek through int $0x80 can carry them. */
#define TL_BATCH(first, n) ((long)((unsigned long)(first) | (unsigned long)(n) << 16))
#define TL_WAIT(n, left) ((long)((unsigned long)(n) | (unsigned long)(left) << 16))

#endif /* _UAPI_LINUX_TRAPLESS_H */
