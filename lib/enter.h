/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * The instruction that enters the kernel, `syscall` or `svc`. It owns the two ways in which the
 * library enters: a raw system call, and the lseek(2) that enters the module. Both return the
 * kernel's own value and leave errno alone, because a ring holds the kernel's own values. It also
 * owns what else of the library differs between processors.
 */
#ifndef TRAPLESS_LIB_ENTER_H
#define TRAPLESS_LIB_ENTER_H

#include <linux/trapless.h>
#include <stdint.h>
#include <sys/syscall.h>

#if !(defined(__x86_64__) || defined(__aarch64__)) || defined(__ILP32__)
#error "libtrapless knows the system-call tables of x86-64 and arm64 only"
#endif

/* Where there is no epoll_wait(2), epoll_pwait(2) does the same if its last arguments are 0. */
#ifdef SYS_epoll_wait
#define SYS_EPOLL_WAIT SYS_epoll_wait
#else
#define SYS_EPOLL_WAIT SYS_epoll_pwait
#endif

#ifdef __x86_64__

/* Tells the processor that this thread reads a word again and again. */
static inline void spin_hint(void)
{
	__builtin_ia32_pause();
}

static inline long raw_syscall(long nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
			       uint64_t a4, uint64_t a5)
{
	register uint64_t r10 __asm__("r10") = a3;
	register uint64_t r8 __asm__("r8") = a4;
	register uint64_t r9 __asm__("r9") = a5;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(nr), "D"(a0), "S"(a1), "d"(a2), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

/* module_enter() for a batch: it leaves one register to its caller, which then needs no other. */
static inline long module_enter_batch(int fd, const struct tl_request *first, uint64_t n)
{
	register const struct tl_request *r10 __asm__("r10") = first;
	register uint64_t r8 __asm__("r8") = n;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"((long)SYS_lseek), "D"((long)fd), "S"(TL_ENTER_OFFSET),
			   "d"((long)TL_ENTER_BATCH), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return result;
}

#else

static inline void spin_hint(void)
{
	__asm__ volatile("yield");
}

static inline long raw_syscall(long nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
			       uint64_t a4, uint64_t a5)
{
	register long x8 __asm__("x8") = nr;
	register uint64_t x0 __asm__("x0") = a0;
	register uint64_t x1 __asm__("x1") = a1;
	register uint64_t x2 __asm__("x2") = a2;
	register uint64_t x3 __asm__("x3") = a3;
	register uint64_t x4 __asm__("x4") = a4;
	register uint64_t x5 __asm__("x5") = a5;

	__asm__ volatile("svc #0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return (long)x0;
}

static inline long module_enter_batch(int fd, const struct tl_request *first, uint64_t n)
{
	register long x8 __asm__("x8") = SYS_lseek;
	register uint64_t x0 __asm__("x0") = (uint64_t)fd;
	register uint64_t x1 __asm__("x1") = TL_ENTER_OFFSET;
	register uint64_t x2 __asm__("x2") = TL_ENTER_BATCH;
	register const struct tl_request *x3 __asm__("x3") = first;
	register uint64_t x4 __asm__("x4") = n;

	__asm__ volatile("svc #0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
			 : "memory");
	return (long)x0;
}

#endif

/*
 * Makes one crossing. lseek(2) is the shortest path from here to a function of the module, and with
 * this offset and whence it changes no file that may have taken the place of the device.
 */
static inline long module_enter(int fd, const void *address, uint64_t argument, uint64_t kind)
{
	return raw_syscall(SYS_lseek, (uint64_t)fd, TL_ENTER_OFFSET, TL_ENTER_OTHER,
			   (uintptr_t)address, argument, kind);
}

#endif /* TRAPLESS_LIB_ENTER_H */
