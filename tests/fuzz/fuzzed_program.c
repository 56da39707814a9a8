// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs one program of the fuzzer: takes its process's rights away, and makes the operations that
 * its bytes name, one after the other. What an operation does, operations.c and disturbances.c
 * know.
 */
#include "fuzzed_program.h"

#include <sys/prctl.h>
#include <sys/resource.h>

struct mail *mail;
bool supervised;

uint8_t script_take(struct script *script)
{
	return script->at < script->input->length ? script->input->bytes[script->at++] : 0;
}

bool script_ended(const struct script *script)
{
	return !script->left || script->at >= script->input->length;
}

void script_run(struct script *script)
{
	while (!script_ended(script)) {
		script->left--;
		mail->operations++;
		operation_make(script);
	}
}

static void limit(int resource, rlim_t value)
{
	MUST(setrlimit(resource, &(struct rlimit){ value, value }));
}

void program_run(const struct input *input)
{
	struct script script = { .input = input, .left = OPERATIONS_MAX };
	uint8_t header = script_take(&script);

	limit(RLIMIT_AS, 256 << 20);
	limit(RLIMIT_FSIZE, 64 << 10);
	limit(RLIMIT_NOFILE, 128);
	limit(RLIMIT_NPROC, 64);
	limit(RLIMIT_CORE, 0);
	MUST(setgid(FUZZ_UID));
	MUST(setuid(FUZZ_UID));
	MUST(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));	/* for tracers, and to own /proc/self */
	supervised = header & PROGRAM_SUPERVISED;
	on_signal(SIGALRM, count_signal, header & PROGRAM_RESTART ? SA_RESTART : 0);
	on_signal(SIGUSR1, count_signal, SA_RESTART);
	on_signal(SIGSYS, count_signal, 0);
	on_signal(SIGPIPE, SIG_IGN, 0);
	if (header & PROGRAM_SIGNALS)
		alarm_ms(5, 5);
	operations_init(input);
	script_run(&script);
	sys(SYS_exit_group, 0);
	__builtin_unreachable();
}
