// SPDX-License-Identifier: GPL-2.0-only
/*
 * The subjects that are timed. Each function makes a number of calls and checks that they were
 * made: a wrong result ends the program. io_uring is in uring.c, a directory in listing.c. This
 * file owns the plain calls, the batches and the floors.
 */
#include "subjects.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <trapless.h>

#include "int80.h"
#include "listing.h"
#include "loop.h"
#include "uring.h"

#define CALLS 512u		/* of one sample */
#define INT80_CALLS 16u		/* of one sample: where a hypervisor sees the trap, it takes long */
#define CHAIN_CALLS 16384u
#define PAGE_BYTES 4096
#define NO_CALL 400		/* a number that no kernel gives a call, among those of calls */
#define BEYOND 4000		/* one beyond all calls: the kernel does not look for it */
#define FRAME_ROOM 8192		/* words below the frame of path.S: a signal may come */

long estimate_path(long *frame);

static const unsigned int batches[] = { 1, 2, 3, 4, 8, 16, 32, 64, 128 };
static const unsigned int rings[] = { 1, 8, 32, 128 };

static struct {
	const char *name;
	void (*init)(struct tl_request *requests, unsigned int entries, char *stack);
	loop_run *run;
	struct tl_batch batch;
} loops[] = {
#define LOOP_ROW(name) { #name, estimate_init_##name, estimate_run_##name, { 0 } },
	ESTIMATE_LOOPS(LOOP_ROW)
};

#define LOOPS (sizeof(loops) / sizeof(*loops))

static int file_fd, null_fd, memory_fd;
static char page[PAGE_BYTES];
static struct tl_batch *module_batch;

static void __attribute__((noreturn)) fail(const char *what, long value)
{
	fprintf(stderr, "trapless-estimate: %s: %ld%s%s\n", what, value, errno ? ": " : "",
		errno ? strerror(errno) : "");
	exit(1);
}

static inline long trap(long nr, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return result;
}

/* ---- Floors ---- */

static __attribute__((noinline)) long function(long value)
{
	__asm__ volatile("" : "+r"(value));
	return value;
}

static void run_function(const struct subject *subject, unsigned int calls)
{
	long sum = 0;

	(void)subject;
	for (unsigned int i = 0; i < calls; i++)
		sum += function(0);
	if (sum)
		fail("function", sum);
}

/*
 * Inversions that wait for each other: one a clock of the processor. Additions of a constant would
 * not do: processors of today add several up before they execute one.
 */
static void run_chain(const struct subject *subject, unsigned int calls)
{
	uint64_t value = calls;

	(void)subject;
	for (unsigned int i = 0; i < calls / 16; i++)
		__asm__ volatile(".rept 16\n\tnot %0\n\t.endr" : "+r"(value));
	if (value != calls)
		fail("chain", (long)value);
}

static void run_vdso(const struct subject *subject, unsigned int calls)
{
	struct timespec now;

	(void)subject;
	for (unsigned int i = 0; i < calls; i++)
		clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
}

static void run_popfq(const struct subject *subject, unsigned int calls)
{
	(void)subject;
	for (unsigned int i = 0; i < calls; i++)
		__asm__ volatile("pushfq; popfq" : : : "memory", "cc");
}

static void run_int80(const struct subject *subject, unsigned int calls)
{
	if (!int80_getpids(calls)) {
		fprintf(stderr, "trapless-estimate: %s: wrong results\n", subject->name);
		exit(1);
	}
}

static void run_path(const struct subject *subject, unsigned int calls)
{
	static long room[FRAME_ROOM + 32];
	long sum = 0;

	(void)subject;
	for (unsigned int i = 0; i < calls; i++)
		sum += estimate_path(&room[FRAME_ROOM]);
	if (sum != 7l * calls)
		fail("path", sum);
}

/* ---- Plain calls ---- */

enum plain {
	BEYOND_ALL, NOSYS, GETPID, GETPPID, LSEEK, READ, PREAD_4K, WRITE, PWRITE, STAT, OPEN_CLOSE,
	PLAINS
};

static const char *const plain_names[PLAINS] = {
	"beyond", "nosys", "getpid", "getppid", "lseek", "pread1", "pread4k", "write",
	"pwrite1", "stat", "openclose",
};

static inline __attribute__((always_inline)) long plain_once(enum plain which, unsigned int i)
{
	static struct stat status;
	long fd;

	switch (which) {
	case BEYOND_ALL: return trap(BEYOND, 0, 0, 0, 0) + ENOSYS;
	case NOSYS: return trap(NO_CALL, 0, 0, 0, 0) + ENOSYS;
	case GETPID: return trap(SYS_getpid, 0, 0, 0, 0) < 1;
	case GETPPID: return trap(SYS_getppid, 0, 0, 0, 0) < 0;
	case LSEEK: return trap(SYS_lseek, null_fd, 5, 0, 0);
	case READ: return trap(SYS_pread64, file_fd, (long)page, 1, i % CALLS) - 1;
	case PREAD_4K: return trap(SYS_pread64, file_fd, (long)page, PAGE_BYTES, 0) - PAGE_BYTES;
	case WRITE: return trap(SYS_write, null_fd, (long)page, 1, 0) - 1;
	case PWRITE: return trap(SYS_pwrite64, memory_fd, (long)page, 1, i % CALLS) - 1;
	case STAT: return trap(SYS_stat, (long)"/dev/null", (long)&status, 0, 0);
	default:
		fd = trap(SYS_openat, AT_FDCWD, (long)"/dev/null", O_RDONLY, 0);
		return fd < 0 ? fd : trap(SYS_close, fd, 0, 0, 0);
	}
}

#define PLAIN(which) \
	static void run_##which(const struct subject *subject, unsigned int calls) \
	{ \
		long wrong = 0; \
		for (unsigned int i = 0; i < calls; i++) \
			wrong |= plain_once(which, i); \
		if (wrong) \
			fail(subject->name, wrong); \
	}
PLAIN(BEYOND_ALL) PLAIN(NOSYS) PLAIN(GETPID) PLAIN(GETPPID) PLAIN(LSEEK) PLAIN(READ) PLAIN(PREAD_4K)
PLAIN(WRITE) PLAIN(PWRITE) PLAIN(STAT) PLAIN(OPEN_CLOSE)

static void (*const plain_run[PLAINS])(const struct subject *subject, unsigned int calls) = {
	run_BEYOND_ALL, run_NOSYS, run_GETPID, run_GETPPID, run_LSEEK, run_READ, run_PREAD_4K,
	run_WRITE, run_PWRITE, run_STAT, run_OPEN_CLOSE,
};

/* Moves the end of the heap down and up again, so little that no page comes or goes. */
static void run_brk(const struct subject *subject, unsigned int calls)
{
	long end = trap(SYS_brk, 0, 0, 0, 0), wrong = 0;

	for (unsigned int i = 0; i < calls; i++) {
		long next = i & 1 ? end : end - 16;

		wrong |= trap(SYS_brk, next, 0, 0, 0) ^ next;
	}
	if (wrong)
		fail(subject->name, wrong);
}

/* ---- Batches ---- */

/* Like tl_batch_flush(): a trap to a driver that does nothing, then the loop in its place. */
static __attribute__((noinline)) long flush(struct tl_batch *batch, loop_run *run, bool crossing)
{
	unsigned long queued = (unsigned long)(batch->next - batch->first);
	long wrong = 0;

	if (!queued)
		return 0;
	if (crossing)
		wrong = trap(SYS_lseek, null_fd, 5, 0, 0);
	wrong |= run(batch->first, queued) ^ (long)queued;
	if (__atomic_load_n(&batch->next[-1].state, __ATOMIC_ACQUIRE) != TL_DONE)
		wrong = 1;
	batch->next = batch->first = batch->requests;
	return wrong;
}

static inline void run_loop(const struct subject *subject, unsigned int calls, bool crossing)
{
	struct tl_batch *batch = &loops[subject->what].batch;
	unsigned int n = subject->n;
	long wrong = 0;

	for (unsigned int i = 0; i < calls; i += n) {
		for (unsigned int j = 0; j < n; j++)
			TL_ADD(batch, SYS_getppid, j);
		wrong |= flush(batch, loops[subject->what].run, crossing);
		for (unsigned int j = 0; j < n; j++)
			wrong |= tl_batch_result(batch, j) ^ j;
	}
	if (wrong)
		fail(subject->name, wrong);
}

static void run_batch(const struct subject *subject, unsigned int calls)
{
	run_loop(subject, calls, true);
}

/* The loop alone, without a crossing. */
static void run_request(const struct subject *subject, unsigned int calls)
{
	run_loop(subject, calls, false);
}

/* ---- Mixes ---- */

#define MIX_WORDS 4096u		/* of a random mix: more than a processor remembers */

static uint16_t random_hot[MIX_WORDS], random_any[MIX_WORDS];
static const uint16_t mix_one[] = { SYS_getppid };
static const uint16_t mix_files[] = { SYS_openat, SYS_fstat, SYS_read, SYS_close };
static const uint16_t mix_statx[] = { SYS_statx };
static const uint16_t mix_sockets[] = { SYS_recvfrom, SYS_sendto };

/* Sequences of calls that programs make. Two are random: among hot calls, and among all calls. */
static const struct mix {
	const char *name;
	const uint16_t *calls;
	unsigned int count;		/* a power of two */
} mixes[] = {
	{ "one", mix_one, 1 }, { "files", mix_files, 4 }, { "statx", mix_statx, 1 },
	{ "sockets", mix_sockets, 2 },
	{ "random", random_hot, MIX_WORDS }, { "rare", random_any, MIX_WORDS },
};

#define MIXES (sizeof(mixes) / sizeof(*mixes))
#define NUMBERS_CLASSIC 335	/* from here on numbers are shared by all architectures */

static void mixes_fill(void)
{
	static const uint16_t hot[] = {
#define TL_HOT(name, nr) nr,
#include <linux/trapless_calls.h>
#undef TL_HOT
	};
	uint64_t seed = 1;

	for (unsigned int i = 0; i < MIX_WORDS; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		random_hot[i] = hot[(seed >> 33) % (sizeof(hot) / sizeof(*hot))];
		random_any[i] = (uint16_t)((seed >> 20) % NUMBERS_CLASSIC);
	}
}

/* One loop with the calls of a mix, without a crossing. A random mix continues where it stopped. */
static void run_mix(const struct subject *subject, unsigned int calls)
{
	const struct mix *mix = &mixes[subject->what % MIXES];
	struct tl_batch *batch = &loops[subject->what / MIXES].batch;
	loop_run *run = loops[subject->what / MIXES].run;
	static unsigned int at;
	long wrong = 0;

	for (unsigned int i = 0; i < calls; i += subject->n) {
		for (unsigned int j = 0; j < subject->n; j++)
			TL_ADD(batch, mix->calls[at++ & (mix->count - 1)], j);
		wrong |= flush(batch, run, false);
		for (unsigned int j = 0; j < subject->n; j++)
			wrong |= tl_batch_result(batch, j) ^ j;
	}
	if (wrong)
		fail(subject->name, wrong);
}

static void run_module(const struct subject *subject, unsigned int calls)
{
	unsigned int n = subject->n;
	long wrong = 0;

	for (unsigned int i = 0; i < calls; i += n) {
		for (unsigned int j = 0; j < n; j++) {
			if (subject->what == GETPPID)
				TL_ADD(module_batch, SYS_getppid);
			else
				TL_ADD(module_batch, SYS_pread64, file_fd, page, 1, j);
		}
		wrong |= tl_batch_flush(module_batch) ^ (int)n;
		for (unsigned int j = 0; j < n; j++)
			wrong |= tl_batch_result(module_batch, j) < 0;
	}
	if (wrong)
		fail(subject->name, wrong);
}

/* ---- The list ---- */

static struct subject *list_at;

static void add(const char *name, unsigned int n, unsigned int calls, unsigned int what,
		void (*run)(const struct subject *subject, unsigned int calls))
{
	struct subject *subject = list_at++;
	int length = snprintf(subject->name, sizeof(subject->name), n ? "%s.n%u" : "%s", name, n);

	if (length >= (int)sizeof(subject->name))
		fail(name, length);
	subject->n = n ? n : 1;
	subject->calls = calls / subject->n * subject->n;
	subject->what = what;
	subject->run = run;
}

static void files_open(const struct subjects_config *config)
{
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	memory_fd = memfd_create("trapless-estimate", MFD_CLOEXEC);
	file_fd = open(config->folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (file_fd < 0) {
		char path[4096];

		snprintf(path, sizeof(path), "%s/trapless-estimate-XXXXXX", config->folder);
		file_fd = mkostemp(path, O_CLOEXEC);
		if (file_fd >= 0)
			unlink(path);
	}
	if (null_fd < 0 || file_fd < 0)
		fail(null_fd < 0 ? "/dev/null" : config->folder, file_fd);
	memset(page, 7, sizeof(page));
	if (write(file_fd, page, sizeof(page)) != (ssize_t)sizeof(page))
		fail(config->folder, 0);
	if (memory_fd < 0 || write(memory_fd, page, sizeof(page)) != (ssize_t)sizeof(page))
		fail("memory", memory_fd);
}

/* A ring and a stack for each loop, where the kernel puts them; returns the loop of that name. */
static unsigned int loops_open(const char *name)
{
	const size_t bytes = TL_RING_BYTES(SUBJECT_BATCH_MAX);
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
	unsigned int chosen = LOOPS;

	for (unsigned int i = 0; i < LOOPS; i++) {
		struct tl_request *requests = mmap(NULL, bytes + ESTIMATE_STACK_BYTES,
						   PROT_READ | PROT_WRITE, flags, -1, 0);

		if (requests == MAP_FAILED)
			fail("mmap", 0);
		loops[i].batch = (struct tl_batch){
			.requests = requests,
			.first = requests,
			.next = requests,
			.end = requests + SUBJECT_BATCH_MAX,
		};
		loops[i].init(requests, SUBJECT_BATCH_MAX, (char *)requests + bytes);
		if (!strcmp(loops[i].name, name))
			chosen = i;
	}
	if (chosen == LOOPS) {
		fprintf(stderr, "trapless-estimate: --loop: no loop is called '%s'\n", name);
		exit(2);
	}
	return chosen;
}

static void add_mixes(void)
{
	char name[SUBJECT_NAME_MAX];

	mixes_fill();
	for (unsigned int i = 0; i < LOOPS * MIXES; i++) {
		snprintf(name, sizeof(name), "mix.%s.%s", mixes[i % MIXES].name,
			 loops[i / MIXES].name);
		add(name, SUBJECT_BATCH_MAX, CALLS, i, run_mix);
	}
}

static void add_module(void)
{
	int error = tl_batch_create(&module_batch, SUBJECT_BATCH_MAX, TL_MODULE);

	errno = -error;
	if (error)
		fail(TL_DEVICE, error);
	for (unsigned int i = 0; i < sizeof(batches) / sizeof(*batches); i++) {
		add("module.getppid", batches[i], CALLS, GETPPID, run_module);
		add("module.pread1", batches[i], CALLS, READ, run_module);
	}
}

static void add_directory(const char *path)
{
	int error = listing_open(path, module_batch);

	errno = -error;
	if (error)
		fail(path, error);
	for (unsigned int i = 0; i < LISTING_SUBJECTS; i++)
		if (i != LISTING_MODULE || module_batch)
			add(listing_names[i], LISTING_FILES, CALLS, i, listing_run);
}

unsigned int subjects_open(struct subject *list, const struct subjects_config *config)
{
	unsigned int own;
	char name[SUBJECT_NAME_MAX];

	list_at = list;
	files_open(config);
	own = loops_open(config->loop);
	add("chain", 0, CHAIN_CALLS, 0, run_chain);
	add("function", 0, CALLS, 0, run_function);
	add("vdso", 0, CALLS, 0, run_vdso);
	add("popfq", 0, CALLS, 0, run_popfq);
	add("path", 0, CALLS, 0, run_path);
	for (unsigned int i = 0; i < PLAINS; i++)
		add(plain_names[i], 0, CALLS, i, plain_run[i]);
	add("brk", 0, CALLS, 0, run_brk);
	if (int80_works())
		add("int80", 0, INT80_CALLS, 0, run_int80);
	else
		puts("{\"absent\": \"int80\", \"why\": \"the kernel has no 32-bit calls\"}");
	for (unsigned int i = 0; i < sizeof(batches) / sizeof(*batches); i++)
		add("batch", batches[i], CALLS, own, run_batch);
	for (unsigned int i = 0; i < LOOPS; i++) {
		snprintf(name, sizeof(name), "request.%s", loops[i].name);
		add(name, SUBJECT_BATCH_MAX, CALLS, i, run_request);
	}
	add_mixes();
	if (config->module)
		add_module();
	if (config->directory)
		add_directory(config->directory);
	return (unsigned int)(list_at - list);
}

unsigned int subjects_open_uring(struct subject *list)
{
	list_at = list;
	for (unsigned int i = 0; !uring_open(file_fd) && i < sizeof(rings) / sizeof(*rings); i++) {
		add("uring.nop", rings[i], CALLS, URING_NOP, uring_run);
		add("uring.read", rings[i], CALLS, URING_READ, uring_run);
	}
	return (unsigned int)(list_at - list);
}
