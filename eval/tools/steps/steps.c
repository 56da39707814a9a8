// SPDX-License-Identifier: GPL-2.0-only
/*
 * Single pieces of work between two marks, for a debugger to follow instruction by instruction from
 * outside the VM (eval/tools/steps/steps.py). It owns the pieces; each is made once before, so that
 * nothing in it happens for the first time. It counts nothing itself.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "marks.h"
#include "measure.h"
#include "mode.h"
#include "traps.h"
#include "trapless.h"

#define NR_NONE 400	/* within the table of calls, and no call */

static struct tl_batch *batch;

static void nosys(void) { trap_fast0(NR_NONE); }
static void make_getpid(void) { trap_fast0(SYS_getpid); }
static void make_getppid(void) { trap_fast0(SYS_getppid); }

static void two_getppid(void)
{
	tl_batch_add(batch, SYS_getppid, 0, 0, 0, 0, 0, 0);
	tl_batch_add(batch, SYS_getppid, 0, 0, 0, 0, 0, 0);
	if (tl_batch_flush(batch) != 2)
		measure_fail("a batch of two was not executed");
}

static const struct piece {
	const char *name;
	void (*make)(void);
	bool supervisor;
} pieces[] = {
	{ "nosys.trap", nosys, false },
	{ "getpid.trap", make_getpid, false },
	{ "getppid.trap", make_getppid, false },
	{ "getppid.batch", two_getppid, false },
	{ "nosys.supervisor", nosys, true },
	{ "getpid.supervisor", make_getpid, true },
	{ "getppid.supervisor", make_getppid, true },
};

static void follow(const struct piece *piece)
{
	for (unsigned int i = 0; i < 3; i++)
		piece->make();
	measure_await_tick();
	steps_begin(piece->name, STEPS_MAGIC);
	piece->make();
	steps_end(piece->name, STEPS_MAGIC);
	printf("{\"piece\": \"%s\"}\n", piece->name);
}

int main(void)
{
	const char *why;
	int module = mode_open(&why);

	measure_pin(0);
	if (tl_batch_create(&batch, 64, TL_MODULE))
		measure_fail("no batches here");
	if (module < 0)
		printf("{\"skipped\": \"supervisor\", \"reason\": \"%s\"}\n", why);
	for (unsigned int i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		if (pieces[i].supervisor && module < 0)
			continue;
		if (pieces[i].supervisor)
			mode_switch(module, 0, TL_MODE_SUPERVISOR, 0);
		follow(&pieces[i]);
	}
	tl_batch_destroy(batch);
	printf("{\"complete\": true}\n");
	return 0;
}
