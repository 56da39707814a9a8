// SPDX-License-Identifier: MIT
/*
 * Makes a million system calls, switches itself to supervisor mode, makes as many calls there and
 * switches back. It reads from the CPU, and not from the library, in which mode it is. Where
 * supervisor mode is refused it prints the reason.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trapless.h>
#include <unistd.h>

#define CALLS 1000000
#define PROCESSES 64

/*
 * The privilege level that this code runs at: 3 in user mode, 0 in supervisor mode. On other
 * processors than x86-64 there is no supervisor mode.
 */
static unsigned int privilege_level(void)
{
	unsigned int selector = 3;

#ifdef __x86_64__
	__asm__ volatile("mov %%cs, %0" : "=r"(selector));
#endif
	return selector & 3;
}

/* Makes the calls and counts those that came back to supervisor mode. */
static void make_calls(const char *when)
{
	long parent = getppid(), inside = 0;

	for (long i = 0; i < CALLS; i++) {
		if (syscall(SYS_getppid) != parent)
			abort();
		inside += !privilege_level();
	}
	printf("%s: of %d calls, %ld came back at privilege level 0\n", when, CALLS, inside);
}

/* What the module counted of this process. */
static void print_counts(void)
{
	struct tl_process list[PROCESSES];
	int n = tl_process_list(list, PROCESSES);

	for (int i = 0; i < n && i < PROCESSES; i++) {
		if (list[i].pid != getpid())
			continue;
		printf("  the module made %llu, the kernel's own entry %llu\n",
		       list[i].calls_direct + list[i].calls_worked + list[i].calls_left,
		       list[i].calls_kernel);
		printf("  interrupts took it to user mode %llu times, page faults %llu\n",
		       list[i].demotions[TL_DEMOTED_INTERRUPT],
		       list[i].demotions[TL_DEMOTED_PAGE_FAULT]);
	}
}

int main(void)
{
	enum tl_refusal why;
	int error;

	make_calls("user mode");
	error = tl_switch_mode(0, TL_MODE_SUPERVISOR, 0, &why);
	if (error) {
		printf("no supervisor mode: %s\n",
		       why == TL_REFUSED_NONE ? strerror(-error) : tl_refusal_text(why));
		return 0;
	}
	make_calls("supervisor mode");
	print_counts();
	error = tl_switch_user(0);
	if (error)
		return 1;
	make_calls("user mode again");
	return 0;
}
