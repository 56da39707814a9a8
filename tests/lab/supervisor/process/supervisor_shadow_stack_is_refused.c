// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process with a shadow stack is not switched: at level 0 its function calls would leave no
 * return address there, and its returns in user mode would fault. A switched thread gets none.
 */
#include "supervisor.h"

/* Of <asm/prctl.h>, which older headers lack. */
#define SHSTK_ENABLE 0x5001
#define SHSTK 1

static void switched_thread_gets_none(void)
{
	enter_supervisor(0);
	CHECK_EQ(sys(SYS_arch_prctl, SHSTK_ENABLE, SHSTK), -EPERM);
}

int main(void)
{
	struct tl_switch request = { .size = sizeof(request), .mode = TL_MODE_SUPERVISOR };
	long result;

	supervisor_need();
	if (!processor_has("user_shstk"))
		SKIP("this processor or kernel has no shadow stacks for programs");
	CHECK_EXITED(child_run(switched_thread_gets_none), 0);
	supervisor_fd();
	/* Not by a function, which could not return: its return address is not on the new stack. */
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(SYS_arch_prctl), "D"(SHSTK_ENABLE), "S"(SHSTK)
			 : "rcx", "r11", "memory");
	CHECK_EQ(result, 0);
	CHECK_EQ(switch_ioctl(&request), -ENOEXEC);
	CHECK_EQ(request.refusal, TL_REFUSED_SHADOW_STACK);
	CHECK_EQ(cpl(), 3);
	_exit(0);
}
