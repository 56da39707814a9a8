// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes every system call that strace 6.1 knows, with arguments of zero. test_call_sets.py runs it
 * under strace, which keeps the kernel from making any of them. It has no library, whose own calls
 * would not be made either, and ends by a trap.
 */
enum {
	LAST_OF_FIRST = 334,
	FIRST_OF_SECOND = 424,
	LAST = 450,
};

void _start(void)
{
	long nr;

	for (nr = 0; nr <= LAST; nr = nr == LAST_OF_FIRST ? FIRST_OF_SECOND : nr + 1) {
		register long fourth __asm__("r10") = 0;
		register long fifth __asm__("r8") = 0;
		register long sixth __asm__("r9") = 0;
		long result = nr;

		__asm__ volatile("syscall"
				 : "+a"(result)
				 : "D"(0), "S"(0), "d"(0), "r"(fourth), "r"(fifth), "r"(sixth)
				 : "rcx", "r11", "memory");
	}
	__builtin_trap();
}
