// SPDX-License-Identifier: GPL-2.0-only
/*
 * All of it at once, on two CPUs: processes in supervisor mode that work, harm themselves, are
 * switched a thousand times a second, signalled, traced, killed, executed and suspended, while
 * NMIs storm, CPUs go and come and others overwrite MSR_LSTAR. Nobody but the harmed notices, every
 * part goes on to the end, and the kernel's log stays clean (the lab looks at it).
 *
 * TL_SOAK_S says for how long, 6 seconds if it does not; `make soak` gives minutes. A line each
 * five seconds on standard output says how far it is.
 */
#include <assert.h>
#include <sys/mount.h>

#include "soak.h"

#define SECONDS 6
#define REPORT_S 5
#define KMEMLEAK "/sys/kernel/debug/kmemleak"
#define STUCK_S 600		/* a part that makes no round for so long is stuck */

static const struct part {
	const char *name;
	void (*round)(void);
	bool switched;		/* its own process is in supervisor mode */
} parts[] = {
	{ "work", soak_work, true },
	{ "work beside", soak_work, true },
	{ "work in user mode", soak_work, false },
	{ "harm", soak_harm, true },
	{ "harm from user mode", soak_harm, false },
	{ "switches", soak_switches, false },
	{ "signals", soak_signals, true },
	{ "tracer", soak_tracer, false },
	{ "tracer in supervisor mode", soak_tracer, true },
	{ "exec", soak_exec, true },
	{ "rings", soak_rings, true },
	{ "rings in user mode", soak_rings, false },
	{ "memory", soak_memory, true },
	{ "memory pressure", soak_pressure, false },
	{ "CPUs", soak_cpus, true },
	{ "suspend", soak_suspend, true },
	{ "entries", soak_entries, true },
	{ "NMI storm", soak_storm, false },
	{ "unload", soak_unload, false },
};

#define PARTS (sizeof(parts) / sizeof(*parts))

static pid_t pids[PARTS];

static void part_run(size_t which)
{
	soak_random = random_seeded(now_us() * PARTS + which);
	if (parts[which].switched)
		enter_supervisor(0);
	while (!soak->end) {
		parts[which].round();
		soak->rounds[which]++;
	}
	_exit(0);
}

static uint64_t rounds_sum(void)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < PARTS; i++)
		sum += soak->rounds[i];
	return sum;
}

/* A part that ended before it was told to has failed, and has said why. */
static void check_alive(void)
{
	int status;
	pid_t pid = waitpid(-1, &status, WNOHANG);

	if (pid <= 0)
		return;
	for (size_t i = 0; i < PARTS; i++)
		if (pids[i] == pid)
			FAIL("part '%s' ended, wait status 0x%x", parts[i].name, status);
}

static void check_progress(uint64_t now)
{
	static uint64_t rounds[PARTS], since[PARTS];

	for (size_t i = 0; i < PARTS; i++) {
		if (soak->rounds[i] != rounds[i] || !since[i]) {
			rounds[i] = soak->rounds[i];
			since[i] = now;
		}
		if (now - since[i] > STUCK_S * 1000)
			FAIL("part '%s' has made no round for %d s", parts[i].name, STUCK_S);
	}
}

static uint64_t read_entry(void)
{
	uint64_t entry = 0;
	int fd = open("/dev/cpu/0/msr", O_RDONLY);

	if (fd >= 0) {
		CHECK_EQ(pread(fd, &entry, sizeof(entry), SOAK_LSTAR), sizeof(entry));
		close(fd);
	}
	return entry;
}

/*
 * kmemleak's own thread is nice and scans inside of one RCU read: beside so many that are not nice
 * it takes minutes, in which no grace period ends and the kernel complains.
 */
static void kmemleak_scan(const char *seconds_or_off)
{
	char command[16];

	if (access(KMEMLEAK, W_OK) < 0)
		mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	snprintf(command, sizeof(command), "scan=%s", seconds_or_off);
	write_file(KMEMLEAK, command);
}

/* A short run on a busy machine lasts until then; a part that does not come to it is stuck. */
static bool each_has_made_a_round(void)
{
	for (size_t i = 0; i < PARTS; i++)
		if (!soak->rounds[i])
			return false;
	return true;
}

static void report(uint64_t passed_ms)
{
	struct tl_process ended = process_counts(PROCESSES_ENDED);

	printf("%llu s: %llu rounds, %llu calls in supervisor mode of processes that ended, "
	       "%llu NMIs\n", (unsigned long long)passed_ms / 1000,
	       (unsigned long long)rounds_sum(), (unsigned long long)calls_inside(&ended),
	       (unsigned long long)soak->nmis);
	fflush(stdout);
}

static void end_all(void)
{
	soak->end = true;
	for (size_t i = 0; i < PARTS; i++)
		CHECK_EXITED(child_wait(pids[i]), 0);
	for (size_t i = 0; i < PARTS; i++)
		printf("%-26s %llu rounds\n", parts[i].name, (unsigned long long)soak->rounds[i]);
	fflush(stdout);
	CHECK_EQ(supervisor_info().processes, 0);
}

int main(void)
{
	uint64_t seconds = getenv("TL_SOAK_S") ? strtoul(getenv("TL_SOAK_S"), NULL, 10) : SECONDS;
	uint64_t begin = now_ms(), now, next = REPORT_S * 1000;

	if (!strcmp(test_stage(), "soaked"))
		soak_executed();
	static_assert(PARTS <= SOAK_PARTS_MAX, "struct soak has no room for all parts");
	supervisor_need();
	soak = shared_memory(sizeof(*soak));
	soak->pause_ms = seconds > 60 ? 15000 : 4000;
	soak->kernel_entry = read_entry();
	write_file("/proc/sys/kernel/core_pattern", SOAK_CORE);
	kmemleak_scan("off");
	for (size_t i = 0; i < PARTS; i++) {
		pids[i] = MUST(fork());
		if (pids[i] == 0)
			part_run(i);
	}
	while ((now = now_ms()) < begin + seconds * 1000 || !each_has_made_a_round()) {
		sleep_ms(200);
		check_alive();
		check_progress(now);
		if (now - begin >= next) {
			report(now - begin);
			next += REPORT_S * 1000;
		}
	}
	end_all();
	kmemleak_scan("600");
	enter_supervisor(0);
	return 0;
}
