// SPDX-License-Identifier: GPL-2.0-only
/*
 * Defines the functions that gcc's instrumentation calls, in a build that counts which lines are
 * reached (the variable TLK_COVERAGE of Kbuild) and in no other. The calls do nothing:
 * tests/coverage/kmod reads the counters where they stand in the module's memory. A kernel built
 * with CONFIG_GCOV_KERNEL has these functions, and stock kernels do not.
 */
#include <linux/types.h>

void __gcov_init(void *object);
void __gcov_exit(void);
void __gcov_merge_add(s64 *counters, unsigned int count);

/* Kernels with CONFIG_CONSTRUCTORS call it for each object of the module. */
void __gcov_init(void *object)
{
}

void __gcov_exit(void)
{
}

void __gcov_merge_add(s64 *counters, unsigned int count)
{
}
