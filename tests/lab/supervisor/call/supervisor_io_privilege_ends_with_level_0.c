// SPDX-License-Identifier: GPL-2.0-only
/*
 * At level 0 popf can set the I/O privilege level. It does not go with the thread to user mode, by
 * a fault or by a call: there it would be the right to use ports and to turn interrupts off.
 */
#include "supervisor.h"

#define IOPL 0x3000ul

static unsigned long flags(void)
{
	unsigned long value;

	__asm__ volatile("pushfq; popq %0" : "=r"(value));
	return value;
}

/* Returns whether the flag was set: at level 3 nothing happens. */
static bool set_privilege(void)
{
	reach_supervisor();
	__asm__ volatile("pushfq; orq %0, (%%rsp); popfq" : : "i"(IOPL) : "memory", "cc");
	return flags() & IOPL;
}

static volatile char *fresh_page(void)
{
	return MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

int main(void)
{
	bool set = false;

	enter_supervisor(0);
	for (int i = 0; i < REACH_CALLS; i++) {
		volatile char *page = fresh_page();

		set |= set_privilege();
		*page = 1;
		CHECK_EQ(cpl(), 3);
		CHECK_EQ(flags() & IOPL, 0);
		CHECK_EQ(munmap((void *)page, 4096), 0);
	}
	CHECK(set);
	for (int i = 0; i < REACH_CALLS; i++) {
		set_privilege();
		CHECK_EQ(sys(SYS_getpid), getpid());
		CHECK_EQ(flags() & IOPL, 0);
	}
	return 0;
}
