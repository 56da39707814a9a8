/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A page fault leaves the program's registers in the thread's frame, and an entry in supervisor
 * mode writes only some of them anew. Whatever value each register had, a batch that follows is no
 * batch inside a batch; and a batch that is inside one is still refused.
 */
#include <limits.h>

#include "ring.h"
#include "supervisor.h"

#define ROUNDS 50

static struct ring ring;
static unsigned int inside;

/* All registers that a call leaves free have `value` at the fault, rax among them. */
static long batch_after_fault(volatile char *page, long value)
{
	register long r10 __asm__("r10") = value;
	register long r8 __asm__("r8") = value;
	register long r9 __asm__("r9") = value;
	long result;

	__asm__ volatile("mov %[value], %%rax\n\t"
			 "mov %[value], %%rcx\n\t"
			 "mov %[value], %%r11\n\t"
			 "movb $1, (%[page])\n\t"
			 "mov %[number], %%eax\n\t"
			 "mov %[requests], %%r10\n\t"
			 "mov $1, %%r8d\n\t"
			 "syscall"
			 : "=&a"(result), "+r"(r10), "+r"(r8), "+r"(r9)
			 : [page] "r"(page), [value] "r"(value), [number] "i"(SYS_lseek),
			   [requests] "r"(ring.requests),
			   "D"((long)ring.fd), "S"(TL_ENTER_OFFSET), "d"((long)TL_ENTER_BATCH)
			 : "rcx", "r11", "memory");
	return result;
}

static void try(long value)
{
	void *page = (void *)sys(SYS_mmap, NULL, 4096, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(!is_error(page));
	reach_supervisor();
	inside += cpl() == 0;
	ring_put(&ring, 0, SYS_getpid);
	CHECK_EQ(batch_after_fault(page, value), 1);
	CHECK_DONE(&ring, 0, getpid());
	CHECK_EQ(sys(SYS_munmap, page, 4096), 0);
}

int main(void)
{
	static const long values[] = { -EDEADLK, -1, 0, LONG_MAX, LONG_MIN };

	ring = ring_open(8);
	enter_supervisor(0);
	for (int round = 0; round < ROUNDS; round++)
		for (unsigned int i = 0; i < sizeof(values) / sizeof(*values); i++)
			try(values[i]);
	CHECK(inside > 0);
	ring_put_entry(&ring, 0, &ring, 1, 1);
	ring_put(&ring, 1, SYS_getpid);
	CHECK_EQ(ring_batch(&ring, 0, 1), 1);
	CHECK_DONE(&ring, 0, -EDEADLK);
	CHECK_EQ(ring_state(&ring, 1), TL_SUBMITTED);
	return 0;
}
