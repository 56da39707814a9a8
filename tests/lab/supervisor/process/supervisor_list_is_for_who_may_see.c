/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The list of switched processes shows a user his own and those that he may debug, whatever he may
 * not see in /proc; and whoever asks for it again and again interrupts no processor.
 */
#include "memory.h"
#include "supervisor.h"

#define STRANGER 1000
#define ROUNDS 300
#define TURNS 10

static pid_t spinners[2];

static void spin(void)
{
	enter_supervisor(0);
	for (;;)
		sys(SYS_getppid);
}

/* Interrupts that processors sent each other to call functions. */
static long function_calls(void)
{
	static char text[1 << 16];
	long sum = 0;
	char *at;

	CHECK(read_file("/proc/interrupts", text, sizeof(text)) > 0);
	at = strstr(text, "CAL:");
	CHECK(at);
	at += 4;
	for (;;) {
		char *end;
		long n = strtol(at, &end, 10);

		if (end == at)
			return sum;
		sum += n;
		at = end;
	}
}

static void as_stranger(void)
{
	struct tl_process found;

	supervisor_fd();
	CHECK_EQ(sys(SYS_setresuid, STRANGER, STRANGER, STRANGER), 0);
	for (int i = 0; i < 2; i++)
		CHECK(!process_find(spinners[i], &found));
	CHECK(process_find(PROCESSES_ENDED, &found));
}

static void own_process(void)
{
	struct tl_process found;

	CHECK_EQ(switch_mode(0, TL_MODE_SUPERVISOR, 0), 0);
	reach_supervisor();
	CHECK_EQ(sys(SYS_setresuid, STRANGER, STRANGER, STRANGER), 0);
	CHECK(process_find(getpid(), &found));
	CHECK(calls_of(&found) > 0);
}

int main(void)
{
	struct tl_process found;
	uint64_t before, seen = 0;
	long calls = ROUNDS;

	supervisor_need();
	for (int i = 0; i < 2; i++)
		spinners[i] = child_start(spin);
	for (int i = 0; i < 2; i++)
		wait_mode(spinners[i], TL_MODE_SUPERVISOR);
	CHECK_EXITED(child_run(as_stranger), 0);
	CHECK_EXITED(child_run(own_process), 0);
	found = process_counts(spinners[0]);
	before = calls_inside(&found);
	/* The kernel's own come, too: as many in as much time without a list. */
	for (int turn = 0; turn < TURNS && calls > ROUNDS / 3; turn++) {
		uint64_t began = now_us(), took;
		long others;

		calls = function_calls();
		for (int round = 0; round < ROUNDS; round++) {
			found = process_counts(spinners[0]);
			CHECK(calls_inside(&found) >= seen);	/* never a count less */
			seen = calls_inside(&found);
		}
		others = function_calls();
		calls = others - calls;
		took = now_us() - began;
		while (now_us() - began < 2 * took)
			sys(SYS_getppid);
		calls -= function_calls() - others;
	}
	WAIT_UNTIL((found = process_counts(spinners[0]), calls_inside(&found) > before),
		   "no more calls after %d ms", WAIT_MS);
	CHECK(calls <= ROUNDS / 3);
	for (int i = 0; i < 2; i++) {
		MUST(kill(spinners[i], SIGKILL));
		child_wait(spinners[i]);
	}
	return 0;
}
