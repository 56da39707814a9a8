/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The rounds of the soak's parts. Each part harms or disturbs processes in supervisor mode in its
 * own way and checks that these processes, and no others, notice. supervisor_soak.c owns the list
 * of parts, the duration, and the check that every part goes on.
 */
#ifndef TL_TEST_SOAK_H
#define TL_TEST_SOAK_H

#include <sys/resource.h>

#include "filter.h"
#include "ring.h"
#include "traced.h"
#include "workload.h"

#define SOAK_PARTS_MAX 24
#define SOAK_THREADS 8
#define SOAK_CORE "/tmp/soak-core"
#define SOAK_CPU1 "/sys/devices/system/cpu/cpu1/online"
#define SOAK_STORM "/nmi_storm.ko"
#define SOAK_LSTAR 0xc0000082
#define SOAK_LEFT_KB (48 << 10)	/* of memory, when somebody takes the rest */
#define SOAK_PIECE (4 << 20)

struct soak {
	volatile bool end;
	volatile uint32_t pause_ms;	/* between the rounds of those that stop everybody */
	volatile uint64_t nmis;
	volatile uint64_t kernel_entry;	/* MSR_LSTAR before anybody was switched */
	volatile uint64_t module_entry;	/* and what it is under switched threads, once seen */
	volatile uint64_t rounds[SOAK_PARTS_MAX];
	struct workload workload;
};

static struct soak *soak;
static struct random soak_random;	/* of the process of a part */

static inline uint32_t soak_below(uint32_t bound)
{
	return random_below(&soak_random, bound);
}

/* In pieces, to see the end come. */
static inline void soak_pause(uint32_t ms)
{
	for (uint32_t slept = 0; slept < ms && !soak->end; slept += 50)
		sleep_ms(ms - slept < 50 ? ms - slept : 50);
}

/* ---- Harm to oneself --------------------------------------------------------------------- */

static void soak_harm_fault(void)
{
	__asm__ volatile("movl $1, 8" : : : "memory");
}

static void soak_harm_undefined(void)
{
	__asm__ volatile("ud2");
}

static void soak_harm_divide(void)
{
	__asm__ volatile("xor %%ecx, %%ecx; xor %%edx, %%edx; mov $1, %%eax; idivl %%ecx"
			 : : : "rax", "rcx", "rdx");
}

static void soak_harm_breakpoint(void)
{
	__asm__ volatile("int3");
}

static void soak_harm_stack(void)
{
	__asm__ volatile("mov $0x1000, %%esp; push %%rax" : : : "memory");
}

static void soak_harm_jump(void)
{
	__asm__ volatile("jmp *%0" : : "r"(0x8000123412341234ul));
}

static void soak_harm_seccomp(void)
{
	sys(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
	sys(SYS_getpid);
}

static void soak_harm_filter(void)
{
	filter_call(SYS_getpid, SECCOMP_RET_KILL_PROCESS);
	sys(SYS_getpid);
}

static const struct soak_harm {
	void (*harm)(void);
	int signal;
} soak_harms[] = {
	{ soak_harm_fault, SIGSEGV }, { soak_harm_undefined, SIGILL },
	{ soak_harm_divide, SIGFPE }, { soak_harm_breakpoint, SIGTRAP },
	{ soak_harm_stack, SIGSEGV }, { soak_harm_jump, SIGSEGV },
	{ soak_harm_seccomp, SIGKILL }, { soak_harm_filter, SIGSYS },
};

static void soak_harm(void)
{
	uint32_t which = soak_below(sizeof(soak_harms) / sizeof(*soak_harms));
	struct rlimit core = { soak_below(4) ? 0 : RLIM_INFINITY, RLIM_INFINITY };
	pid_t pid = MUST(fork());

	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &core);
		enter_supervisor(0);
		soak_harms[which].harm();
		_exit(EXIT_FAIL);
	}
	CHECK_KILLED(child_wait(pid), soak_harms[which].signal);
	unlink(SOAK_CORE);
}

/* ---- Many threads, switched a thousand times a second, until they are killed -------------- */

static void *soak_thread(void *unused)
{
	long pid = getpid();
	char byte = 1;
	int ends[2];

	(void)unused;
	MUST(pipe(ends));
	for (;;) {
		CHECK_EQ(sys(SYS_getpid), pid);
		CHECK_EQ(sys(SYS_write, ends[1], &byte, 1), 1);
		CHECK_EQ(sys(SYS_read, ends[0], &byte, 1), 1);
	}
	return NULL;
}

static void soak_threads(void)
{
	pthread_t thread;

	for (int i = 1; i < SOAK_THREADS; i++)
		CHECK_EQ(pthread_create(&thread, NULL, soak_thread, NULL), 0);
	soak_thread(NULL);
}

static void soak_switches(void)
{
	pid_t pid = child_start(soak_threads);

	for (int i = 0; i < 1000 && !soak->end; i++) {
		CHECK_EQ(i % 2 ? raw_switch_user(pid) : raw_switch_supervisor(pid), 0);
		usleep(1000);
	}
	MUST(kill(pid, SIGKILL));
	CHECK_KILLED(child_wait(pid), SIGKILL);
}

/* ---- Signals ----------------------------------------------------------------------------- */

static volatile sig_atomic_t soak_handled;

static void soak_handle(int signal)
{
	(void)signal;
	CHECK_EQ(cpl(), 3);
	soak_handled++;
}

static void soak_signals(void)
{
	long pid = getpid();
	pid_t sender;

	on_signal(SIGUSR1, soak_handle, SA_RESTART);
	on_signal(SIGALRM, soak_handle, SA_RESTART);
	alarm_ms(1, 2);
	sender = MUST(fork());
	if (sender == 0) {
		for (int i = 0; i < 500; i++) {
			kill((pid_t)pid, SIGUSR1);
			usleep(i % 7 * 30);
		}
		_exit(0);
	}
	for (int i = 0; i < 5000; i++)
		CHECK_EQ(sys(SYS_getpid), pid);
	alarm_ms(0, 0);
	CHECK_EXITED(child_wait(sender), 0);
	CHECK(soak_handled > 0);
}

/* ---- Tracers ----------------------------------------------------------------------------- */

static void soak_tracer(void)
{
	struct target *target = shared_memory(sizeof(*target));
	pid_t pid = target_start(target);
	uint64_t first;

	trace_attach(pid);
	for (int step = 0; step < 20; step++) {
		CHECK_EQ(trace_go(pid, PTRACE_SINGLESTEP), SIGTRAP);
		trace_registers(pid);
	}
	CHECK_EQ(trace_go(pid, PTRACE_SYSCALL), SIGTRAP | 0x80);
	first = trace_registers(pid).rdi;
	for (uint64_t number = first; number < first + 20; number++) {
		CHECK_EQ(trace_registers(pid).rdi, number);
		CHECK_EQ(trace_go(pid, PTRACE_SYSCALL), SIGTRAP | 0x80);
		CHECK_EQ(trace_registers(pid).rax, pid);
		CHECK_EQ(trace_go(pid, PTRACE_SYSCALL), SIGTRAP | 0x80);
	}
	trace_detach(pid);
	target_end(target, pid);
	MUST(munmap(target, sizeof(*target)));
}

/* ---- New programs ------------------------------------------------------------------------- */

static void soak_exec(void)
{
	static const unsigned int flags[] = {
		0, TL_SWITCH_EXEC, TL_SWITCH_CHILDREN, TL_SWITCH_EXEC | TL_SWITCH_CHILDREN,
		TL_SWITCH_RESIDENT,
	};
	uint32_t which = soak_below(5);
	pid_t pid = MUST(fork());

	if (pid == 0) {
		enter_supervisor(flags[which]);
		if (which == 2 && vfork() == 0)
			exec_stage("soaked");
		exec_stage("soaked");
	}
	CHECK_EXITED(child_wait(pid), flags[which] & TL_SWITCH_EXEC ? 0 : 3);
}

/* What the new program does: it says which mode it is in. */
static void soak_executed(void)
{
	unsigned int inside = 0;

	for (int i = 0; i < REACH_CALLS; i++) {
		sys(SYS_getppid);
		inside += cpl() == 0;
		if (i % 10 == 9 && !inside)
			usleep(1000);	/* as reach_supervisor() */
	}
	_exit(inside ? 0 : 3);
}

/* ---- Batches and workers of a process in supervisor mode ---------------------------------- */

static void soak_rings(void)
{
	struct ring batches = ring_open(16), workers = worker_ring_open(16);
	struct worker worker = { .again = true };
	unsigned int done = 0;
	long left;

	for (unsigned int slot = 0; slot < 16; slot++)
		ring_put(&batches, slot, SYS_getpid);
	while (done < 16) {	/* so are batches */
		left = ring_batch(&batches, done, 16 - done);
		CHECK(left > 0 || left == -EINTR);
		done += left > 0 ? (unsigned int)left : 0;
	}
	for (unsigned int slot = 0; slot < 16; slot++)
		CHECK_DONE(&batches, slot, getpid());
	worker_start(&worker, &workers);
	ring_queue(&workers, 3, SYS_getpid);
	CHECK_EQ(ring_notify(&workers, 1), 1);
	do		/* the freezer interrupts the wait, as a signal would */
		left = ring_wait(&workers, 0, 0);
	while (left == -EINTR);
	CHECK_EQ(left, 0);
	CHECK_DONE(&workers, 3, getpid());
	workers_end(&workers, &worker, 1);
	ring_close(&batches);
	ring_close(&workers);
}

/* ---- The machine --------------------------------------------------------------------------- */

static void soak_memory(void)
{
	write_file("/proc/sys/vm/drop_caches", soak_below(2) ? "1" : "2");
	write_file("/proc/sys/vm/compact_memory", "1");
	soak_pause(300);
}

static long soak_available_kb(void)
{
	char text[512], *value;

	CHECK(read_file("/proc/meminfo", text, sizeof(text)) > 0);
	value = strstr(text, "MemAvailable:");
	CHECK(value);
	return strtol(value + strlen("MemAvailable:"), NULL, 10);
}

/* Takes what memory there is, piece by piece, and gives it all back by its end. */
static void soak_take_memory(void)
{
	const int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;

	write_file("/proc/self/oom_score_adj", "1000");
	while (!soak->end && soak_available_kb() > SOAK_LEFT_KB)
		memset(MUST(mmap(NULL, SOAK_PIECE, protection, flags, -1, 0)), 1, SOAK_PIECE);
	_exit(0);
}

/*
 * Somebody takes nearly all memory, so that the kernel has to look for more wherever others ask for
 * some. Where it finds none it ends this process and no other. To take all lasts for minutes on a
 * slow kernel: a round only looks whether it is done.
 */
static void soak_pressure(void)
{
	static pid_t taker;
	int status;

	if (!taker) {
		taker = MUST(fork());
		if (taker == 0)
			soak_take_memory();
	}
	soak_pause(200);
	if (MUST(waitpid(taker, &status, WNOHANG)) == taker) {
		CHECK(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
		taker = 0;
	}
}

static void soak_cpus(void)
{
	if (access(SOAK_CPU1, W_OK) < 0)
		return soak_pause(1000);
	write_file(SOAK_CPU1, "0");	/* -EBUSY while the machine suspends */
	soak_pause(soak_below(300));
	while (write_file(SOAK_CPU1, "1") == -EBUSY)	/* whoever comes next needs both */
		sleep_ms(10);
	soak_pause(soak->pause_ms / 4);
}

static void soak_suspend(void)
{
	static const char *const levels[] = { "freezer", "devices", "processors", "core" };

	soak_pause(soak->pause_ms);
	if (soak->end || write_file("/sys/power/pm_test", levels[soak_below(4)]) < 0)
		return soak_pause(1000);
	write_file("/sys/module/suspend/parameters/pm_test_delay", "0");
	write_file("/sys/power/state", "mem");
}

/*
 * CPU 1 comes and goes: one that comes with an entry that is not the kernel's does without
 * supervisor mode until it goes again, as it should. So only CPU 0 gets the module's.
 */
static void soak_entries(void)
{
	unsigned int cpu = soak_below(2);
	char path[32];
	uint64_t entry;
	int fd;

	soak_pause(20);
	snprintf(path, sizeof(path), "/dev/cpu/%u/msr", cpu);
	fd = open(path, O_RDWR);
	if (fd < 0)
		return;		/* that CPU is away */
	if (pread(fd, &entry, sizeof(entry), SOAK_LSTAR) == sizeof(entry)) {
		if (entry != soak->kernel_entry)
			soak->module_entry = entry;
		entry = cpu == 0 && soak_below(2) && soak->module_entry ? soak->module_entry
									: soak->kernel_entry;
		if (pwrite(fd, &entry, sizeof(entry), SOAK_LSTAR) < 0)
			CHECK(errno == EIO || errno == ENXIO || errno == EINVAL);
	}
	close(fd);
}

/* Again where the freezer interrupts it. */
static long soak_delete_module(const char *name)
{
	long result;

	do
		result = sys(SYS_delete_module, name, O_NONBLOCK);
	while (result == -EINTR);
	return result;
}

static void soak_storm(void)
{
	static const char *const periods[] = {
		"period_us=200", "period_us=1000", "period_us=5000",
	};
	int file = open(SOAK_STORM, O_RDONLY);
	char text[32];

	if (file < 0)
		return soak_pause(1000);
	soak_delete_module("nmi_storm");	/* of a test that failed */
	CHECK_EQ(sys(SYS_finit_module, file, periods[soak_below(3)], 0), 0);
	close(file);
	soak_pause(1500);
	CHECK(read_file("/sys/module/nmi_storm/parameters/nmis", text, sizeof(text)) > 0);
	soak->nmis += (uint64_t)atol(text);
	CHECK_EQ(soak_delete_module("nmi_storm"), 0);
	soak_pause(500);
}

/* The module is in use all the time: nobody gets it out. */
static void soak_unload(void)
{
	supervisor_fd();
	CHECK_EQ(soak_delete_module("trapless"), -EAGAIN);
	soak_pause(10);
}

static void soak_work(void)
{
	struct workload_state state = {
		.random = soak_random, .zero = MUST(open("/dev/zero", O_RDONLY)),
		.pid = getpid(), .inside = &soak->workload.inside[0],
	};

	MUST(pipe(state.ends));
	workload_pipe(&state);
	workload_calls(&state);
	workload_pages(&state);
	workload_numbers(&state);
	workload_naps(&state);
	workload_errors(&state);
	workload_children(&state);
	close(state.zero);
	close(state.ends[0]);
	close(state.ends[1]);
}

#endif /* TL_TEST_SOAK_H */
