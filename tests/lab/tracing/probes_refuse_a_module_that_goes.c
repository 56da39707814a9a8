// SPDX-License-Identifier: GPL-2.0-only
/*
 * The attack: `probes` is written while the module is being removed. Its parameters are there until
 * the end, and what would be on then would run code that is freed. A write that comes so late is
 * refused.
 */
#include "module.h"

#define PARAMETERS "/sys/module/trapless/parameters/"
#define STATE "/sys/module/trapless/initstate"
#define ROUNDS_MAX 50	/* until a write has come between the beginning of the end and the end */

static bool is_going(void)
{
	char text[16] = "";
	int file = open(STATE, O_RDONLY | O_CLOEXEC);

	if (file < 0)
		return false;
	if (read(file, text, sizeof(text) - 1) < 0)
		text[0] = '\0';
	close(file);
	return !strncmp(text, "going", 5);
}

/* Whether the write came while the module was going. */
static bool write_late(const char *probes)
{
	int file = MUST(open(PARAMETERS "probes", O_WRONLY | O_CLOEXEC));
	bool was_going = false;
	pid_t child = MUST(fork());

	if (child == 0)
		_exit(module_unload() == 0 ? 0 : 1);
	while (!was_going && access(STATE, F_OK) == 0)
		was_going = is_going();
	if (was_going)
		CHECK_EQ(sys(SYS_pwrite64, file, probes, strlen(probes), 0), -ENODEV);
	CHECK_EXITED(child_wait(child), 0);
	close(file);
	return was_going;
}

static void try_late(const char *probes)
{
	for (int round = 0; round < ROUNDS_MAX; round++) {
		const bool was_late = write_late(probes);

		CHECK(access("/sys/module/trapless", F_OK) < 0);
		CHECK_EQ(module_load("events=sched_switch"), 0);
		if (was_late)
			return;
	}
	FAIL("the module was gone before a write of probes came, %d times", ROUNDS_MAX);
}

int main(void)
{
	module_need_probes();
	CHECK(write_file(PARAMETERS "probes", "0") > 0);
	CHECK(write_file(PARAMETERS "events", "sched_switch") > 0);
	try_late("8");
	try_late("7");
	module_reload();
	return 0;
}
