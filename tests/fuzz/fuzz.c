// SPDX-License-Identifier: GPL-2.0-only
/*
 * The fuzzer in the guest: runs programs one after the other, each in a process of its own without
 * rights, watches what becomes of it, and keeps those that reached something new in the module. It
 * owns the order, the limits and the verdict on one program; mutate.c makes programs and
 * fuzzed_program.c runs them. tests/fuzz/fuzz.py starts it and reads its lines:
 *
 *   run HEX             this program is next
 *   new HEX             the last one reached something that none before it had reached
 *   stat NAME=VALUE...  each few seconds, and at the end
 *   held TEXT           who is left, before a finding that something does not end
 *   finding KIND: TEXT  the last program did this; the fuzzer ends with status 1
 */
#include <getopt.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "counted.h"
#include "holders.h"
#include "mutate.h"

#define UNKILLABLE_MS 120000	/* a killed one is gone after that, on the slowest kernel */
#define RELEASE_MS 60000	/* and the module in use no longer than that */
#define LOOKS_MIN 10000		/* each of 0.5 ms: time passes while a machine stands still */
#define LIVES_MAX 10		/* of a program that does */
#define STAT_MS 5000
#define CLEAN_PROGRAMS 256	/* so many share a directory and objects of IPC */
#define RELOAD_PROGRAMS 64
#define WISHED_FLAGS (TL_SWITCH_FLAGS & ~TL_SWITCH_ANY_USER)
#define SANDBOX "/tmp/fuzz"
#define REFERENCES "/sys/module/trapless/refcnt"
#define DEBUG "/sys/kernel/debug/"

static struct corpus corpus;
static uint64_t counters[COUNTED_MAX], last[COUNTED_MAX];
static uint8_t buckets[COUNTED_MAX];	/* how often each counted in one program: bits */
static size_t counters_count;
static uint32_t reached, programs, operations_sum, switched, reloads, killed;
static int counters_fd, log_fd;
static bool reload;
static uint32_t life_ms = 50;	/* of a program that makes no operation */
static uint64_t begin_ms;

static void print_input(const char *what, const struct input *input)
{
	printf("%s ", what);
	for (uint32_t i = 0; i < input->length; i++)
		printf("%02x", input->bytes[i]);
	putchar('\n');
	fflush(stdout);
}

static void print_stat(void)
{
	printf("stat seconds=%llu programs=%u operations=%u corpus=%u reached=%u of=%zu "
	       "switched=%u reloads=%u killed=%u\n",
	       (unsigned long long)(now_ms() - begin_ms) / 1000, programs, operations_sum,
	       corpus.count, reached, counters_count, switched, reloads, killed);
	fflush(stdout);
}

static void __attribute__((noreturn)) finding(const char *kind, const char *text)
{
	print_stat();
	printf("finding %s: %s\n", kind, text);
	fflush(stdout);
	sleep_ms(500);	/* the rest of what the kernel has to say */
	_exit(1);
}

/* ---- The guest ------------------------------------------------------------------------------- */

/* Every other time for probes, which exclude supervisor mode; a kernel may lack them. */
static void load(void)
{
	counted_load(COUNTED_MODULE, reloads % 2 ? "" : "supervisor=1", TL_DEVICE);
	if (reloads % 2)
		write_file("/sys/module/trapless/parameters/probes", "3");
}

static void clean_sandbox(void)
{
	umount2(SANDBOX, MNT_DETACH);
	mkdir(SANDBOX, 0777);
	MUST(mount("fuzz", SANDBOX, "tmpfs", 0, "size=4m,nr_inodes=1000,mode=777"));
	MUST(chdir(SANDBOX));
	unshare(CLONE_NEWIPC);
}

static void prepare(void)
{
	MUST(prctl(PR_SET_CHILD_SUBREAPER, 1));
	mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	write_file(DEBUG "failslab/ignore-gfp-wait", "N");
	write_file(DEBUG "failslab/verbose", "0");
	write_file(DEBUG "fail_usercopy/verbose", "0");
	write_file("/proc/sys/vm/unprivileged_userfaultfd", "1");
	write_file("/proc/sys/kernel/print-fatal-signals", "0");
	write_file("/proc/sys/debug/exception-trace", "0");
	unshare(CLONE_NEWNET);
	unshare(CLONE_NEWUTS);
	MUST(unshare(CLONE_NEWNS));
	MUST(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	clean_sandbox();
	log_fd = MUST(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
	MUST(lseek(log_fd, 0, SEEK_END));
	counters_fd = counted_open();
	mail = MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

/* ---- One program ----------------------------------------------------------------------------- */

/* A process without rights that kills all others without rights. */
static void kill_all(void)
{
	pid_t pid = MUST(fork());

	if (pid == 0) {
		MUST(setuid(FUZZ_UID));
		kill(-1, SIGKILL);
		_exit(0);
	}
}

/* Is it time to say that something does not end? It has been looked at so often since `begin`. */
static bool is_over(uint64_t begin, uint32_t limit_ms, uint32_t *looks)
{
	if (++*looks < LOOKS_MIN || now_ms() - begin < limit_ms)
		return false;
	holders_print();
	return true;
}

/* Waits until no child and no orphan of a child is left. */
static void reap_all(void)
{
	uint64_t begin = now_ms(), next = 0;
	uint32_t looks = 0;
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG | __WALL)) >= 0 || errno == EINTR) {
		if (pid > 0)
			continue;
		if (now_ms() >= next) {
			kill_all();
			next = now_ms() + 1000;
		}
		if (is_over(begin, UNKILLABLE_MS, &looks))
			finding("unkillable", "a process does not end");
		usleep(500);
	}
}

/* Processes of the program write into the mail at the same time; pid 0 would be the watcher. */
static void grant_mode(pid_t pid)
{
	uint32_t wish = mail->mode - 1;
	pid_t named = (pid_t)mail->pid;
	struct tl_switch request = {
		.size = sizeof(request), .mode = wish & 1,
		.pid = named > 1 && named != getpid() ? named : pid,
		.flags = wish & 1 ? TL_SWITCH_ANY_USER | (wish >> 8 & WISHED_FLAGS) : 0,
	};
	int fd = open(TL_DEVICE, O_RDWR | O_CLOEXEC);

	switched += fd >= 0 && !ioctl(fd, TL_IOC_SWITCH, &request);
	close(fd);
	mail->mode = 0;
}

/* Probes patch the kernel's code, which QEMU survives only where its CPUs take turns. */
static void grant_probes(void)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", (mail->probes - 1) & 15);
	if (reload)
		write_file("/sys/module/trapless/parameters/probes", text);
	mail->probes = 0;
}

static void watch(pid_t pid, bool may_be_switched)
{
	uint64_t now = now_ms(), end = now + LIVES_MAX * life_ms, stalled = now + life_ms;
	uint32_t seen = 0;

	while (waitpid(pid, NULL, WNOHANG | __WALL) == 0) {
		/* Only what keeps to safe calls, and only while nothing else runs in this guest. */
		if (mail->mode && may_be_switched)
			grant_mode(pid);
		if (mail->probes)
			grant_probes();
		now = now_ms();
		if (mail->operations != seen) {
			seen = mail->operations;
			stalled = now + life_ms;
		}
		if (now > end || now > stalled) {
			killed++;
			kill(pid, SIGKILL);
			break;
		}
		usleep(300);
	}
}

static void run(const struct input *input)
{
	pid_t pid;

	print_input("run", input);
	memset(mail, 0, sizeof(*mail));
	pid = MUST(fork());
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		for (int fd = 0; fd < 3; fd++)
			dup2(null, fd);
		sys(SYS_close_range, 3, ~0u, 0);
		setsid();
		program_run(input);
	}
	watch(pid, input->length && input->bytes[0] & PROGRAM_SUPERVISED);
	reap_all();
	programs++;
	operations_sum += mail->operations % 100000;
}

/* ---- The verdict ----------------------------------------------------------------------------- */

/*
 * A data race is a finding only where the module has a part in it: the kernel has races of its own,
 * also in interrupts, whose stacks end with whom they interrupted. Locks that are held are no part.
 * A report is many records, between two lines of equals signs. trapless/vm/splats.py asks the same
 * of a whole log; here it is asked while the program is at hand.
 */
static bool is_kernels_race(const char *record)
{
	static char race[256];
	static bool counts = true;

	if (strstr(record, "BUG: KCSAN: "))
		snprintf(race, sizeof(race), "%s", strchr(record, ';') + 1);
	else if (strstr(record, "====="))
		race[0] = '\0';
	if (strstr(record, " bytes by "))
		counts = true;
	else if (strstr(record, " asm_") || strstr(record, " held by "))
		counts = false;
	if (race[0] && counts && strstr(record, "[trapless]"))
		finding("splat", race);
	return race[0];
}

static void check_log(void)
{
	static const char *const openers[] = {
		"cut here ]", "BUG: ", "BUG at ", "KASAN", "WARNING: ", "Oops", "UBSAN",
		"INFO: task ", "INFO: rcu", "suspicious RCU", "general protection",
		"unreferenced object",
	};
	char record[8192];
	ssize_t n;

	while ((n = read(log_fd, record, sizeof(record) - 1)) > 0 || errno == EPIPE) {
		if (n <= 0)
			continue;
		record[n] = '\0';
		if (is_kernels_race(record))
			continue;
		for (size_t i = 0; i < sizeof(openers) / sizeof(*openers); i++)
			if (strstr(record, openers[i]))
				finding("splat", strchr(record, ';') + 1);
	}
}

static void check_released(void)
{
	uint64_t begin = now_ms();
	uint32_t looks = 0;
	char text[32];

	if (reload)
		write_file("/sys/module/trapless/parameters/probes", "0");
	while (read_file(REFERENCES, text, sizeof(text)) > 0 && atoi(text)) {
		if (is_over(begin, RELEASE_MS, &looks))
			finding("leak", "the module is in use, and no program is left");
		usleep(500);
	}
}

static uint8_t bucket(uint64_t count)
{
	return count > 64 ? 8 : count > 8 ? 4 : count > 1 ? 2 : count ? 1 : 0;
}

/* Whether the last program reached something new. */
static bool check_counters(void)
{
	bool fresh = false;

	counters_count = counted_read(counters_fd, counters);
	for (size_t i = 0; i < counters_count; i++) {
		uint8_t bit = bucket(counters[i] - last[i]);

		if (bit & ~buckets[i]) {
			reached += !buckets[i];
			buckets[i] |= bit;
			fresh = true;
		}
	}
	memcpy(last, counters, sizeof(last));
	return fresh;
}

static void unload(void)
{
	uint64_t begin = now_ms();
	uint32_t looks = 0;

	check_released();
	while (sys(SYS_delete_module, "trapless", O_NONBLOCK)) {
		if (is_over(begin, RELEASE_MS, &looks))
			finding("leak", "the module cannot be removed");
		usleep(500);
	}
	check_log();
}

static bool try(const struct input *input)
{
	bool fresh;

	run(input);
	check_log();
	check_released();
	fresh = check_counters();
	if (programs % CLEAN_PROGRAMS == 0)
		clean_sandbox();
	if (reload && programs % RELOAD_PROGRAMS == 0) {
		unload();
		reloads++;
		load();
	}
	return fresh;
}

static void scan_for_leaks(void)
{
	if (access(DEBUG "kmemleak", W_OK))
		return;
	/* What was allocated just now may not be referred to yet. */
	for (int i = 0; i < 2; i++) {
		write_file(DEBUG "kmemleak", "scan");
		sleep_ms(5500);
	}
	check_log();
}

/* ---- Inputs ---------------------------------------------------------------------------------- */

static bool read_input(FILE *file, struct input *input)
{
	unsigned int byte;
	char line[2 * INPUT_MAX + 2];

	input->length = 0;
	if (!fgets(line, sizeof(line), file))
		return false;
	for (char *at = line; input->length < INPUT_MAX && sscanf(at, "%2x", &byte) == 1; at += 2)
		input->bytes[input->length++] = (uint8_t)byte;
	return true;
}

/* Programs of earlier runs, first of all; those that reach nothing new here are left out. */
static void replay(const char *path, uint32_t repeats, uint64_t end)
{
	FILE *file = fopen(path, "r");
	struct input input;

	if (!file)
		return;
	while (now_ms() < end && read_input(file, &input)) {
		bool fresh = false;

		if (!input.length)
			continue;
		for (uint32_t i = 0; i < repeats; i++)
			fresh |= try(&input);
		if (fresh) {
			print_input("new", &input);
			corpus_add(&corpus, &input);
		}
	}
	fclose(file);
}

static void fuzz(uint64_t seed, uint64_t end)
{
	struct random random = random_seeded(seed);
	uint64_t next = now_ms();

	while (now_ms() < end) {
		struct input input = corpus_mutate(&corpus, &random);

		if (try(&input)) {
			print_input("new", &input);
			corpus_add(&corpus, &input);
		}
		if (now_ms() >= next) {
			print_stat();
			next = now_ms() + STAT_MS;
		}
	}
}

int main(int argc, char **argv)
{
	uint64_t seed = 1, seconds = 10;
	uint32_t repeats = 1;
	int option;

	if (argc == 2 && !strcmp(argv[1], "--nothing"))
		return 0;
	while ((option = getopt(argc, argv, "s:t:n:d:r")) != -1) {
		switch (option) {
		case 's': seed = strtoull(optarg, NULL, 0); break;
		case 't': seconds = strtoull(optarg, NULL, 0); break;
		case 'n': repeats = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 'd': life_ms = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 'r': reload = true; break;
		default:
			fputs("usage: fuzz [-s SEED] [-t SECONDS] [-n REPEATS] [-d LIFE_MS] [-r] "
			      "FILE\n", stderr);
			return 2;
		}
	}
	if (access("/trapless_counters.ko", R_OK))
		FAIL("this is no guest of the fuzzer; run it by: make fuzz");
	prepare();
	load();
	begin_ms = now_ms();
	check_counters();
	replay(optind < argc ? argv[optind] : "/corpus", repeats, begin_ms + seconds * 1000);
	if (repeats == 1)
		fuzz(seed, begin_ms + seconds * 1000);
	scan_for_leaks();
	unload();
	print_stat();
	return 0;
}
