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

/* ---- Supervisor mode ------------------------------------------------------------------------
 *
 * A process is switched as a whole, all its threads, by switch_supervisor(pid) and
 * switch_user(pid) (running-mode-switch, Table 1). The request is registered and returns; each
 * thread changes at the end of a system call of its own, at most one call late (method b of
 * section 3.2.3). A thread that sleeps in a call changes when the call returns. Threads that the
 * process creates later are like the process.
 *
 * The module offers it only when loaded with supervisor=1, and asks CAP_SYS_RAWIO and
 * CAP_SYS_MODULE (in the initial user namespace) of whoever switches: a process in supervisor
 * mode can do anything to the machine.
 */
enum tl_mode {
	TL_MODE_USER = 0,
	TL_MODE_SUPERVISOR = 1,
};

/* Options of a switch to supervisor mode; a later switch replaces them. */
#define TL_SWITCH_CHILDREN (1u << 0)	/* processes that it forks start in supervisor mode */
#define TL_SWITCH_EXEC     (1u << 1)	/* it stays in supervisor mode over execve() */
#define TL_SWITCH_RESIDENT (1u << 2)	/* its memory is locked, as mlockall(2) does */
#define TL_SWITCH_FLAGS (TL_SWITCH_CHILDREN | TL_SWITCH_EXEC | TL_SWITCH_RESIDENT)

/*
 * Why a process is not switched. The first 32 are about the machine, kernel and module, and are
 * bits of tl_supervisor.refusals; the others are about the target of one request.
 */
enum tl_refusal {
	TL_REFUSED_PARAMETER = 0,	/* the module was loaded without supervisor=1 */
	TL_REFUSED_CONFIG = 1,		/* the kernel was built without what it takes */
	TL_REFUSED_SYMBOL = 2,		/* the kernel lacks a function that it takes */
	TL_REFUSED_PTI = 3,		/* page-table isolation: user code's tables lack the kernel */
	TL_REFUSED_FRED = 4,		/* FRED: events are not delivered through the IDT */
	TL_REFUSED_LASS = 5,		/* LASS: supervisor mode cannot fetch user addresses */
	TL_REFUSED_IBT = 6,		/* kernel IBT: user code has no ENDBR where the kernel's has */
	TL_REFUSED_SHSTK = 7,		/* shadow stacks: each privilege level has its own */
	TL_REFUSED_IBRS = 8,		/* IBRS has to be set at each entry into the kernel */
	TL_REFUSED_CALL_DEPTH = 9,	/* call depth is accounted from each entry into the kernel */
	TL_REFUSED_XEN = 10,		/* Xen PV: the kernel itself is not in supervisor mode */
	TL_REFUSED_CONFIDENTIAL = 11,	/* SEV-ES, TDX: exceptions of the entry code's own */
	TL_REFUSED_CONTEXT = 12,	/* context tracking (nohz_full) must see each transition */
	TL_REFUSED_IST = 13,		/* the interrupt stack that the module needs is in use */
	TL_REFUSED_ENTRY = 14,		/* MSR_LSTAR or the IDT is not the kernel's own */
	TL_REFUSED_LOCKDOWN = 15,	/* the kernel is locked down */

	TL_REFUSED_NOT_CAPABLE = 32,	/* the caller lacks CAP_SYS_RAWIO or CAP_SYS_MODULE */
	TL_REFUSED_OTHER_USER = 33,	/* another user's process, and the caller lacks CAP_SYS_PTRACE */
	TL_REFUSED_PRIVILEGED = 34,	/* set-user-ID, set-group-ID: its IDs differ */
	TL_REFUSED_CONFINED = 35,	/* under a seccomp filter or in strict mode */
	TL_REFUSED_COMPAT = 36,		/* a 32-bit process */
	TL_REFUSED_KERNEL_THREAD = 37,	/* a kernel thread, or exiting */
	TL_REFUSED_VCPU = 38,		/* runs a virtual machine (KVM) */
	TL_REFUSED_NONE = 255,		/* not refused */
};
#define TL_REFUSALS_MACHINE 16	/* of the first kind there are */

struct tl_switch {
	__u32 size;		/* in: sizeof(struct tl_switch) as the caller knows it */
	__u32 mode;		/* in: enum tl_mode */
	__s32 pid;		/* in: process ID in the caller's pid namespace; 0: the caller's own */
	__u32 flags;		/* in: TL_SWITCH_*, with TL_MODE_SUPERVISOR only */
	__u32 refusal;		/* out: enum tl_refusal, or TL_REFUSED_NONE */
	__u32 reserved[3];	/* must be zero */
};

/* What the module can do here. */
struct tl_supervisor {
	__u32 size;		/* in: size the caller knows; out: bytes filled */
	__u32 processes;	/* out: switched at present, in all pid namespaces */
	__u64 refusals;		/* out: bit 1 << TL_REFUSED_*: 0 means supervisor mode is offered */
	__u64 reserved[2];
};

/* What takes a thread out of supervisor mode until the end of its next system call. */
enum tl_demotion {
	TL_DEMOTED_INTERRUPT = 0,	/* a device, timer or other CPU */
	TL_DEMOTED_PAGE_FAULT = 1,
	TL_DEMOTED_EXCEPTION = 2,	/* any other */
	TL_DEMOTED_DEBUG = 3,		/* #DB: single step, breakpoint register */
	TL_DEMOTED_NMI = 4,
	TL_DEMOTED_MACHINE_CHECK = 5,
	TL_DEMOTED_COMPAT_CALL = 6,	/* int $0x80 */
	TL_DEMOTED_EXIT = 7,		/* a call that could not return in supervisor mode */
	TL_DEMOTIONS = 8,
};

/* One switched process. Counts are of all its threads since it was switched first. */
struct tl_process {
	__s32 pid;		/* in the caller's pid namespace */
	__u32 mode;		/* enum tl_mode: what was asked for last */
	__u32 flags;		/* TL_SWITCH_* */
	__u32 threads;		/* threads known: switched or about to */
	__u32 supervisor;	/* threads whose calls run in supervisor mode now */
	__s32 resident;		/* 0: not asked or not yet; 1: locked; else -errno of mlockall */
	char comm[16];		/* name of the program, NUL-terminated */
	__u64 calls_direct;	/* made by the module, returned in supervisor mode at once */
	__u64 calls_worked;	/* the same after exit work of the kernel (signals, scheduling) */
	__u64 calls_left;	/* made by the module, returned in user mode */
	__u64 calls_kernel;	/* handed to the kernel's own entry (fork, exec, traced, ...) */
	__u64 switches;		/* requests about this process */
	__u64 demotions[TL_DEMOTIONS];	/* by cause */
};

struct tl_processes {
	__u32 size;		/* in: sizeof(struct tl_processes) as the caller knows it */
	__u32 entry_size;	/* in: sizeof(struct tl_process) as the caller knows it */
	__u32 count;		/* in: entries that fit; out: entries filled in */
	__u32 total;		/* out: processes that the caller's pid namespace can see */
	__u64 entries;		/* in: user address of `count` entries of entry_size bytes */
	__u64 reserved;		/* must be zero */
};

/*
 * TL_IOC_SWITCH: 0 or -errno, and on refusal the reason in `refusal`:
 *   -EOPNOTSUPP  refused by the machine, kernel or module
 *   -EPERM       the caller may not switch this target
 *   -ENOEXEC     the target cannot run in supervisor mode (32-bit, kernel thread, vCPU)
 *   -ESRCH       no such process; a thread's ID is not a process's
 *   -EINVAL      mode, flags, size or a reserved field
 *   -ENOMEM      memory is short: some threads may not have been asked; ask again
 * TL_IOC_SUPERVISOR and TL_IOC_PROCESSES need no capability.
 */
#define TL_IOC_SWITCH     _IOWR(TL_IOC_MAGIC, 0x06, struct tl_switch)
#define TL_IOC_SUPERVISOR _IOWR(TL_IOC_MAGIC, 0x07, struct tl_supervisor)
#define TL_IOC_PROCESSES  _IOWR(TL_IOC_MAGIC, 0x08, struct tl_processes)

#endif /* _UAPI_LINUX_TRAPLESS_H */
