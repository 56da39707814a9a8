// SPDX-License-Identifier: GPL-2.0-only
/*
 * A generator of garbage: for a bounded time processes of uid 1000, in namespaces of their own,
 * fill every ring field with garbage while other threads rewrite it, enter in every way and
 * ioctl with garbage arguments, bend the mapping, serve as workers and are interrupted and killed.
 * The kernel must stay whole (the runner reads its log) and the module must serve the next ring.
 *
 * TL_SEED repeats a run (threads still race), TL_GARBAGE_MS sets its length.
 */
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "calls.h"
#include "random.h"
#include "ring.h"

#define DEFAULT_MS 5000
#define ATTACK_MS 500		/* life of one attacking process */
#define ANSWERS_MIN 1000		/* else it was no attack: a slow machine takes longer */
#define ATTACK_ANSWERS_MAX (1u << 24)	/* more than one attacker can get in its life */
#define SLOTS 64u
#define RINGS 4
#define THREADS_MAX 16

static uint64_t seed;
static char scratch[65536] __attribute__((aligned(4096)));
static struct ring rings[RINGS];	/* even: batches, odd: workers */
static pid_t tids[THREADS_MAX];		/* who may block and must be interrupted */
static unsigned int tids_count;
static uint64_t *answered;		/* requests of attackers that were completed, shared */
static uint64_t answered_sum;		/* ... of all, where no attacker can write */

/* Calls that end or blind the attacker itself: made seldom, or it would not live to do more. */
static bool is_suicide(uint32_t nr)
{
	switch (nr) {
	case SYS_kill: case SYS_tkill: case SYS_tgkill: case SYS_rt_sigqueueinfo:
	case SYS_rt_tgsigqueueinfo: case SYS_pidfd_send_signal: case SYS_setrlimit:
	case SYS_prlimit64: case SYS_munmap: case SYS_mprotect: case SYS_close_range:
	case SYS_rt_sigprocmask: case SYS_rt_sigaction: case SYS_brk: case SYS_mremap:
		return true;
	}
	return false;
}

static uint32_t garbage_number(struct random *random)
{
	uint32_t nr;

	if (random_below(random, 16) == 0)
		return (uint32_t)random_next(random);
	if (random_below(random, 16) == 0)
		return random_below(random, 512);
	nr = calls[random_below(random, CALLS_COUNT)].nr;
	return is_suicide(nr) && random_below(random, 64) ? SYS_getpid : nr;
}

static uint64_t garbage_argument(struct random *random)
{
	const struct ring *ring = &rings[random_below(random, RINGS)];

	switch (random_below(random, 12)) {
	case 0: return 0;
	case 1: return random_below(random, 16);
	case 2: return (uint64_t)ring->fd;
	case 3: return (uint64_t)scratch + random_below(random, sizeof(scratch));
	case 4: return (uint64_t)scratch + sizeof(scratch) - random_below(random, 8);
	case 5: return (uint64_t)ring->requests + random_below(random, TL_RING_BYTES(SLOTS));
	case 6: return random_below(random, 65536);
	case 7: return 1ULL << random_below(random, 64);
	case 8: return -(uint64_t)random_below(random, 4096);
	case 9: return 0xffff888000000000u + random_next(random) % (1u << 30);
	case 10: return (uint64_t)TL_WAIT(random_below(random, 8), random_below(random, SLOTS));
	default: return random_next(random);
	}
}

static void garbage_request(struct random *random, struct tl_request *request)
{
	request->nr = garbage_number(random);
	for (int i = 0; i < 6; i++)
		request->args[i] = garbage_argument(random);
	/* Most numbers are of programs, which say where arguments are and what comes next. */
	if (random_below(random, 4))
		request->nr |= (uint32_t)random_next(random) & TL_PROGRAM_BITS;
	if (!random_below(random, 16))
		request->nr |= TL_NR_INCREASE | random_below(random, 2);
	request->condition = (uint8_t)random_below(random, 9);
	request->target = (uint16_t)random_below(random, random_below(random, 16) ? SLOTS : 65536);
	request->state = (uint8_t)random_below(random, 5);
	request->result = (int64_t)random_next(random);
}

static void fill_scratch(struct random *random)
{
	for (size_t i = 0; i < sizeof(scratch); i += 8) {
		uint64_t value = garbage_argument(random);

		memcpy(scratch + i, &value, 8);
	}
}

/* Opens what garbage has closed or unmapped. Never fails: garbage may have made that impossible. */
static void reopen(int index)
{
	struct ring *ring = &rings[index];
	long fd = sys(SYS_openat, AT_FDCWD, TL_DEVICE, O_RDWR);
	void *map;

	if (fd < 0)
		return;
	device_setup((int)fd, SLOTS, index % 2 ? TL_SETUP_WORKERS : 0,
		     index / 2 ? TL_SPIN_US_MAX : 0);
	map = device_map((int)fd, SLOTS);
	if (is_error(map)) {
		sys(SYS_close, fd);
		return;
	}
	ring->entries = SLOTS;
	ring->submit = (uint32_t *)((char *)map + TL_RING_SUBMIT_OFFSET(SLOTS));
	ring->requests = map;
	ring->fd = (int)fd;
}

static void *rewrite(void *arg)
{
	struct random random = random_seeded(seed ^ (uint64_t)arg << 32);

	for (;;) {
		struct ring *ring = &rings[random_below(&random, RINGS)];

		garbage_request(&random, &ring->requests[random_below(&random, SLOTS)]);
		ring->submit[random_below(&random, SLOTS)] =
			random_below(&random, 8) ? random_below(&random, SLOTS) :
						   (uint32_t)random_next(&random);
	}
	return NULL;
}

/* Another thread may enter, or rewrite the place, at the same time. */
static long garbage_program(struct random *random, const struct ring *ring)
{
	volatile struct tl_program *program = (void *)((char *)ring->requests +
						       TL_RING_PROGRAM_OFFSET(SLOTS));

	program->at = random_below(random, random_below(random, 16) ? SLOTS : UINT32_MAX);
	program->steps = random_below(random, 16) ? random_below(random, 4 * SLOTS) :
						    random_next(random);
	return enter(ring, random_below(random, SLOTS + 2), TL_ENTER_PROGRAM);
}

static void garbage_enter(struct random *random, const struct ring *ring)
{
	uint32_t first = random_below(random, SLOTS), n = random_below(random, SLOTS + 2);
	long done;

	switch (random_below(random, 12)) {
	case 0:
		enter(ring, (long)garbage_argument(random), (int)random_below(random, 5));
		break;
	case 1:
		enter_at(ring->fd, (void *)garbage_argument(random), (long)random_next(random),
			 (int)random_below(random, 5));
		break;
	case 2:
	case 3:
		ring_notify(ring, n);
		break;
	case 4:
		ring_wait(ring, n, first);
		break;
	default:
		done = random_below(random, 2) ? ring_batch(ring, first, n) :
						 garbage_program(random, ring);
		if (done > 0)
			__atomic_fetch_add(answered, (uint64_t)done, __ATOMIC_RELAXED);
	}
}

static void garbage_ioctl(struct random *random, const struct ring *ring)
{
	static const unsigned long commands[] = {
		TL_IOC_INFO, TL_IOC_SETUP, TL_IOC_STATS, TL_IOC_ENTER, TL_IOC_EXIT,
		TL_IOC_WAKE, TL_IOC_RING,
	};
	uint32_t which = random_below(random, 16);

	if (which == 4 && random_below(random, 8))
		return;		/* a ring that was shut down is of little use */
	sys(SYS_ioctl, ring->fd, which < 7 ? commands[which] : random_next(random),
	    which >= 3 && random_below(random, 4) ? (uint64_t)ring->requests :
						    garbage_argument(random));
}

static void garbage_mapping(struct random *random, const struct ring *ring)
{
	char *map = (char *)ring->requests;
	size_t length = random_below(random, 4) * 4096;

	switch (random_below(random, 5)) {
	case 0:
		sys(SYS_mmap, NULL, length, random_below(random, 8),
		    random_below(random, 4), ring->fd, random_below(random, 4) * 4096);
		break;
	case 1:
		sys(SYS_mremap, map, TL_RING_BYTES(SLOTS), length, MREMAP_MAYMOVE);
		break;
	case 2:
		sys(SYS_madvise, map, TL_RING_BYTES(SLOTS), random_below(random, 26));
		break;
	case 3:
		sys(SYS_munmap, map, length);
		break;
	default:
		sys(SYS_close, ring->fd);
	}
}

static void enlist(void)
{
	unsigned int place = __atomic_fetch_add(&tids_count, 1, __ATOMIC_RELAXED);

	if (place < THREADS_MAX)
		tids[place] = (pid_t)sys(SYS_gettid);
}

/* Interrupts whoever garbage has put to sleep. */
static void *pester(void *arg)
{
	struct random random = random_seeded(seed ^ (uint64_t)arg << 32);

	for (;;) {
		sys(SYS_tgkill, getpid(), tids[random_below(&random, THREADS_MAX)], SIGALRM);
		sleep_ms(random_below(&random, 2));
	}
	return NULL;
}

static void *attack(void *arg)
{
	struct random random = random_seeded(seed ^ (uint64_t)arg << 32);

	enlist();
	for (;;) {
		int index = (int)random_below(&random, RINGS);
		uint32_t what = random_below(&random, 64);

		if (what == 0)
			reopen(index);
		else if (what == 1)
			garbage_mapping(&random, &rings[index]);
		else if (what == 2)
			fill_scratch(&random);
		else if (what < 12)
			garbage_ioctl(&random, &rings[index]);
		else
			garbage_enter(&random, &rings[index]);
	}
	return NULL;
}

static void *work(void *arg)
{
	enlist();
	for (;;) {
		ring_ioctl(&rings[(long)arg], TL_IOC_ENTER);
		sys(SYS_sched_yield);
	}
	return NULL;
}

static void limit(int resource, rlim_t value)
{
	MUST(setrlimit(resource, &(struct rlimit){ value, value }));
}

/* One attacking process: never returns, ends by its own garbage or by its parent. */
static void attacker(void)
{
	static void *(*const bodies[])(void *) = {
		rewrite, rewrite, pester, attack, attack, attack,
	};
	struct random random = random_seeded(seed);
	int null = MUST(open("/dev/null", O_RDWR));
	pthread_t thread;

	limit(RLIMIT_AS, 512 << 20);
	limit(RLIMIT_FSIZE, 1 << 20);
	limit(RLIMIT_NOFILE, 256);
	limit(RLIMIT_CORE, 0);
	for (int i = 0; i < RINGS; i++)
		reopen(i);
	for (int i = 0; i < RINGS; i++)
		CHECK(rings[i].requests);
	for (int fd = 0; fd < 3; fd++)
		MUST(dup2(null, fd));
	fill_scratch(&random);
	on_signal(SIGALRM, count_signal, random_below(&random, 2) ? SA_RESTART : 0);
	alarm_ms(1, 1 + random_below(&random, 5));
	/* The first threads' garbage may keep the later ones from starting: let it. */
	for (long i = 0; i < (long)(sizeof(bodies) / sizeof(*bodies)); i++)
		pthread_create(&thread, NULL, bodies[i], (void *)(i + 1));
	for (long i = 0; i < 4; i++)
		pthread_create(&thread, NULL, work, (void *)(i % 2 * 2 + 1));
	attack((void *)99);
}

static void run_attacker(void)
{
	uint64_t deadline = now_ms() + ATTACK_MS, killed;
	pid_t pid;
	int status;

	*answered = 0;
	pid = MUST(fork());
	if (pid == 0) {
		MUST(setgid(1000));
		MUST(setuid(1000));
		attacker();
	}
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (now_ms() > deadline)
			kill(pid, SIGKILL);
		sleep_ms(5);
		killed = now_ms();
		if (killed > deadline + WAIT_MS)
			FAIL("seed %llu: the attacker does not die", (unsigned long long)seed);
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FAIL)
		FAIL("the attacker could not begin");
	if (*answered < ATTACK_ANSWERS_MAX)	/* else garbage has hit the counter */
		answered_sum += *answered;
}

/* Process 1 of the new namespace: whatever is left in it ends with it. */
static void attack_for_a_while(void)
{
	const char *text = getenv("TL_GARBAGE_MS");
	uint64_t end = now_ms() + (text ? strtoull(text, NULL, 0) : DEFAULT_MS);

	MUST(prctl(PR_SET_PDEATHSIG, SIGKILL));
	MUST(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	MUST(mkdir("garbage", 0777));
	MUST(mount("garbage", "garbage", "tmpfs", 0, "size=4m,nr_inodes=1000,mode=777"));
	MUST(chdir("garbage"));
	for (; now_ms() < end || answered_sum <= ANSWERS_MIN; seed++)
		run_attacker();
	*answered = answered_sum;
}

int main(void)
{
	struct ring ring;
	int status;

	seed = random_choose_seed();
	if (getuid() != 0)
		SKIP("needs root to shut the attackers in namespaces");
	MUST(unshare(CLONE_NEWPID | CLONE_NEWNS));
	if (unshare(CLONE_NEWIPC) < 0 || unshare(CLONE_NEWUTS) < 0 || unshare(CLONE_NEWNET) < 0)
		fprintf(stderr, "some namespaces are missing: %s\n", strerror(errno));
	answered = shared_memory(4096);
	status = child_run(attack_for_a_while);
	CHECK_EXITED(status, 0);
	fprintf(stderr, "requests answered: %llu\n", (unsigned long long)*answered);
	CHECK(*answered > ANSWERS_MIN);
	ring = ring_open(8);
	CHECK_EQ(batch_call(&ring, SYS_getpid), getpid());
	return 0;
}
