// SPDX-License-Identifier: GPL-2.0-only
/*
 * tl_call_get_class() knows every call of the table by name and gives a reason for each
 * restriction. It knows no number that no kernel has.
 */
#include "lib_check.h"

int main(void)
{
	const char *name = NULL, *reason = NULL;
	unsigned int known = 0;

	CHECK_EQ(tl_call_get_class(SYS_read, &name, &reason), TL_CALL_ANY);
	CHECK_EQ(strcmp(name, "read"), 0);
	CHECK_EQ(strcmp(reason, ""), 0);
	CHECK_EQ(tl_call_get_class(SYS_execve, &name, &reason), TL_CALL_REFUSED);
	CHECK_EQ(strcmp(name, "execve"), 0);
	CHECK(*reason);
	CHECK_EQ(tl_call_get_class(SYS_setuid, NULL, NULL), TL_CALL_BATCH);
	CHECK_EQ(tl_call_get_class(SYS_ppoll, NULL, NULL), TL_CALL_NULL_MASK);
	CHECK_EQ(tl_call_get_class(SYS_waitid, NULL, NULL), TL_CALL_SELF_VALUE);
	CHECK_EQ(tl_call_get_class(UINT32_MAX, NULL, NULL), -ENOSYS);
	for (uint32_t nr = 0; nr < 4096; nr++) {
		int class = tl_call_get_class(nr, &name, &reason);

		if (class == -ENOSYS)
			continue;
		known++;
		CHECK(*name);
		CHECK_EQ(!*reason, class == TL_CALL_ANY);
	}
	CHECK(known > 300);
	return 0;
}
