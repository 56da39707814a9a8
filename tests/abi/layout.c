/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * layout.c - prints every size, offset and number of the binary interface, one `name value` a
 * line, as the C compiler at hand sees it. test_abi.py compares the lines with the frozen table
 * and with trapless/abi.py. It checks nothing itself.
 */
#include <stddef.h>
#include <stdio.h>

#include <linux/trapless.h>

#define NUMBER(name) printf("%s %lld\n", #name, (long long)(name))
#define SIZE(type) printf("%s %zu\n", #type, sizeof(struct type))
#define FIELD(type, field)                                                                \
	printf("%s.%s %zu %zu\n", #type, #field, offsetof(struct type, field),            \
	       sizeof(((struct type *)NULL)->field))

static void print_structs(void)
{
	SIZE(tl_request);
	FIELD(tl_request, nr);
	FIELD(tl_request, state);
	FIELD(tl_request, args);
	FIELD(tl_request, result);

	SIZE(tl_setup);
	FIELD(tl_setup, size);
	FIELD(tl_setup, flags);
	FIELD(tl_setup, entries);
	FIELD(tl_setup, spin_us);
	FIELD(tl_setup, reserved);

	SIZE(tl_info);
	FIELD(tl_info, size);
	FIELD(tl_info, abi);
	FIELD(tl_info, entries_max);
	FIELD(tl_info, calls_allowed);
	FIELD(tl_info, version);

	SIZE(tl_stats);
	FIELD(tl_stats, size);
	FIELD(tl_stats, reserved);
	FIELD(tl_stats, crossings);
	FIELD(tl_stats, executed);
	FIELD(tl_stats, refused);
	FIELD(tl_stats, interrupted);
	FIELD(tl_stats, bypassed);
	FIELD(tl_stats, sleeps);
	FIELD(tl_stats, wakeups);
	FIELD(tl_stats, dropped);
}

static void print_numbers(void)
{
	NUMBER(TL_ABI_VERSION);
	NUMBER(TL_ENTRIES_MAX);
	NUMBER(TL_SPIN_US_MAX);
	NUMBER(TL_FREE);
	NUMBER(TL_SUBMITTED);
	NUMBER(TL_RUNNING);
	NUMBER(TL_DONE);
	NUMBER(TL_SETUP_WORKERS);
	NUMBER(TL_SETUP_FLAGS);
	NUMBER(TL_IOC_INFO);
	NUMBER(TL_IOC_SETUP);
	NUMBER(TL_IOC_STATS);
	NUMBER(TL_IOC_ENTER);
	NUMBER(TL_IOC_EXIT);
	NUMBER(TL_DOOR_BATCH);
	NUMBER(TL_DOOR_NOTIFY);
	NUMBER(TL_DOOR_WAIT);
	NUMBER(TL_RING_SUBMIT_OFFSET(64));
	NUMBER(TL_RING_BYTES(1));
	NUMBER(TL_RING_BYTES(64));
	NUMBER(TL_RING_BYTES(TL_ENTRIES_MAX));
	NUMBER(TL_BATCH(4095, 4096));
	NUMBER(TL_WAIT(4096, 4095));
}

int main(void)
{
	printf("TL_DEVICE %s\n", TL_DEVICE);
	print_structs();
	print_numbers();
	return 0;
}
