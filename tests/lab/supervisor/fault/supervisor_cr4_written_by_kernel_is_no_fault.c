// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel writes CR4 from a copy of its own, which has SMEP and SMAP on, whenever it changes
 * another bit of it or flushes the whole TLB. A thread in supervisor mode does not notice: it is
 * not sent a signal, reads and writes what it could before, and goes on in supervisor mode.
 */
#include <sys/prctl.h>

#include "supervisor.h"

#define TURNS 200

static volatile long word = 1;

int main(void)
{
	enter_supervisor(0);
	for (long i = 1; i <= TURNS; i++) {
		/* Disabling the TSC and enabling it again sets and clears CR4.TSD. */
		CHECK_EQ(sys(SYS_prctl, PR_SET_TSC, PR_TSC_SIGSEGV), 0);
		reach_supervisor();
		CHECK_EQ(word, i);
		CHECK_EQ(sys(SYS_prctl, PR_SET_TSC, PR_TSC_ENABLE), 0);
		reach_supervisor();
		word++;
	}
	return 0;
}
