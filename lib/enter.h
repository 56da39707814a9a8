/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * The `syscall` instruction. It owns the two ways in which the library enters the kernel: a raw
 * system call, and the lseek(2) that enters the module. Both return the kernel's own value and
 * leave errno alone, because a ring holds the kernel's own values.
 */
#ifndef TRAPLESS_LIB_ENTER_H
#define TRAPLESS_LIB_ENTER_H

#include <linux/trapless.h>
#include <stdint.h>
#include <sys/syscall.h>

#if !defined(__x86_64__) || defined(__ILP32__)
#error "libtrapless knows the system-call table of x86-64 only"
#endif

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

/*
 * Makes one crossing. lseek(2) is the shortest path from here to a function of the module, and with
 * this offset and whence it changes no file that may have taken the place of the device.
 */
static inline long module_enter(int fd, const void *address, uint64_t argument, uint64_t kind)
{
	return raw_syscall(SYS_lseek, (uint64_t)fd, TL_ENTER_OFFSET, TL_ENTER_OTHER,
			   (uintptr_t)address, argument, kind);
}

/* The same for a batch: it leaves one register to its caller, which then needs no other. */
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

#endif /* TRAPLESS_LIB_ENTER_H */
