/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The two ways into the kernel that the paper compares, each as bare as it gets: the fast trap
 * (`syscall`, x86-64 numbers) and the INT trap (`int $0x80`, i386 numbers, pointers below 4 GB). No
 * errno, no cancellation: results are a value or -errno. arm64 has one trap, `svc`, in place of the
 * fast one.
 */
#ifndef EVAL_TRAPS_H
#define EVAL_TRAPS_H

#include <stdint.h>

#ifdef __x86_64__

static inline __attribute__((always_inline)) long trap_fast0(long nr)
{
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "0"(nr) : "rcx", "r11", "memory");
	return result;
}

static inline __attribute__((always_inline)) long trap_fast3(long nr, uint64_t a0, uint64_t a1,
							      uint64_t a2)
{
	long result;

	__asm__ volatile("syscall" : "=a"(result)
			 : "0"(nr), "D"(a0), "S"(a1), "d"(a2) : "rcx", "r11", "memory");
	return result;
}

static inline __attribute__((always_inline)) long trap_fast4(long nr, uint64_t a0, uint64_t a1,
							      uint64_t a2, uint64_t a3)
{
	register uint64_t r10 __asm__("r10") = a3;
	long result;

	__asm__ volatile("syscall" : "=a"(result)
			 : "0"(nr), "D"(a0), "S"(a1), "d"(a2), "r"(r10) : "rcx", "r11", "memory");
	return result;
}

/* Numbers of the i386 table; asm/unistd_32.h cannot be included beside the x86-64 one. */
#define INT_NR_WRITE 4
#define INT_NR_BREAK 17		/* no call: -ENOSYS */
#define INT_NR_LSEEK 19
#define INT_NR_GETPID 20
#define INT_NR_GETPPID 64
#define INT_NR_PREAD64 180
#define INT_NR_FSTATAT64 300

static inline __attribute__((always_inline)) long trap_int0(long nr)
{
	int result;

	__asm__ volatile("int $0x80" : "=a"(result) : "0"(nr)
			 : "r8", "r9", "r10", "r11", "memory");
	return result;
}

static inline __attribute__((always_inline)) long trap_int3(long nr, uint64_t a0, uint64_t a1,
							     uint64_t a2)
{
	int result;

	__asm__ volatile("int $0x80" : "=a"(result) : "0"(nr), "b"(a0), "c"(a1), "d"(a2)
			 : "r8", "r9", "r10", "r11", "memory");
	return result;
}

static inline __attribute__((always_inline)) long trap_int4(long nr, uint64_t a0, uint64_t a1,
							     uint64_t a2, uint64_t a3)
{
	int result;

	__asm__ volatile("int $0x80" : "=a"(result) : "0"(nr), "b"(a0), "c"(a1), "d"(a2), "S"(a3)
			 : "r8", "r9", "r10", "r11", "memory");
	return result;
}

/* The i386 ABI splits a 64-bit argument: pread64 takes the offset's high half in edi. */
static inline __attribute__((always_inline)) long trap_int5(long nr, uint64_t a0, uint64_t a1,
							     uint64_t a2, uint64_t a3, uint64_t a4)
{
	int result;

	__asm__ volatile("int $0x80" : "=a"(result)
			 : "0"(nr), "b"(a0), "c"(a1), "d"(a2), "S"(a3), "D"(a4)
			 : "r8", "r9", "r10", "r11", "memory");
	return result;
}

/*
 * lseek by either trap, with the two registers beside that an entry for a batch has. The kernel
 * keeps all registers of a 64-bit program at `int $0x80`, too.
 */
static inline __attribute__((always_inline)) long
trap_fast_enter(long nr, uint64_t fd, uint64_t offset, uint64_t whence, uint64_t address,
		uint64_t argument)
{
	register uint64_t r10 __asm__("r10") = address;
	register uint64_t r8 __asm__("r8") = argument;
	long result;

	__asm__ volatile("syscall" : "=a"(result)
			 : "0"(nr), "D"(fd), "S"(offset), "d"(whence), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return result;
}

static inline __attribute__((always_inline)) long
trap_int_enter(long nr, uint64_t fd, uint64_t offset, uint64_t whence, uint64_t address,
	       uint64_t argument)
{
	register uint64_t r10 __asm__("r10") = address;
	register uint64_t r8 __asm__("r8") = argument;
	int result;

	__asm__ volatile("int $0x80" : "=a"(result), "+r"(r10), "+r"(r8)
			 : "0"(nr), "b"(fd), "c"(offset), "d"(whence)
			 : "r9", "r11", "memory");
	return result;
}

#else /* arm64 */

#include <errno.h>

static inline __attribute__((always_inline)) long
trap_fast_enter(long nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4)
{
	register long x8 __asm__("x8") = nr;
	register uint64_t x0 __asm__("x0") = a0;
	register uint64_t x1 __asm__("x1") = a1;
	register uint64_t x2 __asm__("x2") = a2;
	register uint64_t x3 __asm__("x3") = a3;
	register uint64_t x4 __asm__("x4") = a4;

	__asm__ volatile("svc #0" : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
	return (long)x0;
}

static inline __attribute__((always_inline)) long trap_fast0(long nr)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0");

	__asm__ volatile("svc #0" : "=r"(x0) : "r"(x8) : "memory");
	return x0;
}

static inline __attribute__((always_inline)) long trap_fast3(long nr, uint64_t a0, uint64_t a1,
							      uint64_t a2)
{
	register long x8 __asm__("x8") = nr;
	register uint64_t x0 __asm__("x0") = a0;
	register uint64_t x1 __asm__("x1") = a1;
	register uint64_t x2 __asm__("x2") = a2;

	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	return (long)x0;
}

static inline __attribute__((always_inline)) long trap_fast4(long nr, uint64_t a0, uint64_t a1,
							      uint64_t a2, uint64_t a3)
{
	register long x8 __asm__("x8") = nr;
	register uint64_t x0 __asm__("x0") = a0;
	register uint64_t x1 __asm__("x1") = a1;
	register uint64_t x2 __asm__("x2") = a2;
	register uint64_t x3 __asm__("x3") = a3;

	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return (long)x0;
}

/* What a program compiles instead of the INT trap; int80_works() says that there is none. */
static inline long trap_none(long nr, ...)
{
	(void)nr;
	return -ENOSYS;
}

#define INT_NR_WRITE 0
#define INT_NR_BREAK 0
#define INT_NR_LSEEK 0
#define INT_NR_GETPID 0
#define INT_NR_GETPPID 0
#define INT_NR_PREAD64 0
#define INT_NR_FSTATAT64 0
#define trap_int0 trap_none
#define trap_int3 trap_none
#define trap_int4 trap_none
#define trap_int5 trap_none
#define trap_int_enter trap_none

#endif

#endif /* EVAL_TRAPS_H */
