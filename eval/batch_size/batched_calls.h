/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The system calls that the batch-size experiment makes: their arguments for each of the ways into
 * the kernel, and what they must return. It owns no way into the kernel.
 *
 * Everything that runs inside a measured region is inlined with the subject as a constant, so that
 * a mechanism pays for its own work and for nothing of the experiment's.
 */
#ifndef EVAL_SUBJECTS_H
#define EVAL_SUBJECTS_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <liburing.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "traps.h"

#ifdef __x86_64__
#define SUBJECT_NR_NONE SYS_create_module	/* no kernel of today has it */
#else
#define SUBJECT_NR_NONE __NR_arch_specific_syscall	/* arm64 has none of its own */
#endif

#define SUBJECT_CALLS 512u	/* calls in one measurement, as in Fig. 11 */
#define SUBJECT_CALLS_LONG 128u	/* the same for long calls: to be counted within a timer tick */
#define SUBJECT_BATCH_MAX 128u	/* largest N */
#define SUBJECT_FILES 64u	/* real files that stat visits in turn */
#define SUBJECT_PAGE 4096u
#define SUBJECT_FILE_PAGES 64u	/* pages of the file that is read */
#define SUBJECT_NAME 64		/* bytes of a file's path */

/*
 * NOSYS: a number that the kernel has no call for; it is made by traps only, and shows what a trap
 * costs.
 */
enum subject { NOSYS, GETPID, GETPPID, READ1, READ4K, READ1_DISK, WRITE1, STAT, SUBJECTS };

/* struct stat64 of the i386 ABI: the fields that the checks need, at their offsets. */
struct int_stat64 {
	uint8_t before_size[44];
	uint8_t size[8];
	uint8_t before_ino[36];
	uint8_t ino[8];
} __attribute__((packed));

_Static_assert(sizeof(struct int_stat64) == 96, "i386 stat64 has 96 bytes");

/* One block below 4 GB, so that 32-bit calls reach it. */
struct fixture {
	uint8_t bytes[SUBJECT_CALLS];				/* READ1, READ1_DISK */
	uint8_t pages[SUBJECT_BATCH_MAX][SUBJECT_PAGE];		/* READ4K */
	union {
		struct stat plain;
		struct int_stat64 narrow;
		struct statx ring;
	} stats[SUBJECT_CALLS];					/* STAT */
	char names[SUBJECT_FILES][SUBJECT_NAME];
	struct stat expected[SUBJECT_FILES];
	int page_fd, disk_fd, null_fd, pid, parent;
};

const char *subject_name(enum subject subject);
/* Calls in one measurement with batches of n: 512 or a little less, a multiple of n. */
unsigned int subject_calls(enum subject subject, unsigned int n);
/* disk: a directory on a disk file system, or NULL where READ1_DISK is not asked for. */
struct fixture *fixture_create(const char *directory, const char *disk);
/* Clears what earlier calls left behind, so that only calls that are really made pass the check. */
void fixture_clear(struct fixture *fixture, enum subject subject);

/* In which form a STAT wrote its answer. */
enum stat_form { STAT_PLAIN, STAT_NARROW, STAT_RING };

/* Ends the program unless the last `calls` calls, in batches of n, left the right bytes behind. */
void fixture_check(const struct fixture *fixture, enum subject subject, enum stat_form form,
		   unsigned int n, unsigned int calls, const char *mechanism);

static inline __attribute__((always_inline)) long subject_result(enum subject subject,
								 const struct fixture *fixture)
{
	switch (subject) {
	case NOSYS: return -ENOSYS;
	case GETPID: return fixture->pid;
	case GETPPID: return fixture->parent;
	case READ1: case READ1_DISK: case WRITE1: return 1;
	case READ4K: return SUBJECT_PAGE;
	default: return 0;
	}
}

/*
 * Offset of the j-th 1-byte read: another byte each time, over the whole file, and never the first
 * of a page, where some file systems do a little more.
 */
static inline uint64_t read1_offset(unsigned int j)
{
	return j * 510u + 1;
}

static inline uint64_t read4k_offset(unsigned int j)
{
	return j % SUBJECT_FILE_PAGES * SUBJECT_PAGE;
}

static inline __attribute__((always_inline)) int read1_fd(enum subject subject,
							  const struct fixture *fixture)
{
	return subject == READ1_DISK ? fixture->disk_fd : fixture->page_fd;
}

struct call {
	uint32_t nr, count;	/* count: arguments in use */
	uint64_t a0, a1, a2, a3;
};

/* The j-th call, i-th of its batch, with the numbers of the fast trap. */
static inline __attribute__((always_inline)) struct call
subject_call(enum subject subject, struct fixture *fixture, unsigned int j, unsigned int i)
{
	switch (subject) {
	case NOSYS:
		return (struct call){ .nr = SUBJECT_NR_NONE };
	case GETPID:
		return (struct call){ .nr = SYS_getpid };
	case GETPPID:
		return (struct call){ .nr = SYS_getppid };
	case READ1:
	case READ1_DISK:
		return (struct call){ SYS_pread64, 4, (uint64_t)read1_fd(subject, fixture),
				      (uintptr_t)&fixture->bytes[j], 1, read1_offset(j) };
	case READ4K:
		return (struct call){ SYS_pread64, 4, (uint64_t)fixture->page_fd,
				      (uintptr_t)fixture->pages[i], SUBJECT_PAGE,
				      read4k_offset(j) };
	case WRITE1:
		return (struct call){ SYS_write, 3, (uint64_t)fixture->null_fd,
				      (uintptr_t)&fixture->bytes[j], 1, 0 };
	default:
		return (struct call){ SYS_newfstatat, 4, (uint64_t)AT_FDCWD,
				      (uintptr_t)fixture->names[j % SUBJECT_FILES],
				      (uintptr_t)&fixture->stats[j].plain, 0 };
	}
}

static inline __attribute__((always_inline)) long
subject_fast(enum subject subject, struct fixture *fixture, unsigned int j, unsigned int i)
{
	struct call call = subject_call(subject, fixture, j, i);

	switch (call.count) {
	case 0: return trap_fast0(call.nr);
	case 3: return trap_fast3(call.nr, call.a0, call.a1, call.a2);
	default: return trap_fast4(call.nr, call.a0, call.a1, call.a2, call.a3);
	}
}

static inline __attribute__((always_inline)) long
subject_int(enum subject subject, struct fixture *fixture, unsigned int j, unsigned int i)
{
	struct call call = subject_call(subject, fixture, j, i);

	switch (subject) {
	case NOSYS: return trap_int0(INT_NR_BREAK);
	case GETPID: return trap_int0(INT_NR_GETPID);
	case GETPPID: return trap_int0(INT_NR_GETPPID);
	case READ1: case READ1_DISK: case READ4K:
		return trap_int5(INT_NR_PREAD64, call.a0, call.a1, call.a2, call.a3, 0);
	case WRITE1: return trap_int3(INT_NR_WRITE, call.a0, call.a1, call.a2);
	default: return trap_int4(INT_NR_FSTATAT64, call.a0, call.a1, call.a2, call.a3);
	}
}

/* io_uring has no getpid and no getppid: the caller makes NOPs of them and says so. */
static inline __attribute__((always_inline)) void
subject_sqe(enum subject subject, struct fixture *fixture, struct io_uring_sqe *sqe,
	    unsigned int j, unsigned int i)
{
	switch (subject) {
	case READ1:
	case READ1_DISK:
		io_uring_prep_read(sqe, read1_fd(subject, fixture), &fixture->bytes[j], 1,
				   read1_offset(j));
		break;
	case READ4K:
		io_uring_prep_read(sqe, fixture->page_fd, fixture->pages[i], SUBJECT_PAGE,
				   read4k_offset(j));
		break;
	case WRITE1:
		io_uring_prep_write(sqe, fixture->null_fd, &fixture->bytes[j], 1, 0);
		break;
	case STAT:
		io_uring_prep_statx(sqe, AT_FDCWD, fixture->names[j % SUBJECT_FILES], 0,
				    STATX_BASIC_STATS, &fixture->stats[j].ring);
		break;
	default:
		io_uring_prep_nop(sqe);
		break;
	}
}

static inline __attribute__((always_inline)) long
subject_sqe_result(enum subject subject, const struct fixture *fixture)
{
	return subject == GETPID || subject == GETPPID ? 0 : subject_result(subject, fixture);
}

#endif /* EVAL_SUBJECTS_H */
