// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a program of the fuzzer does with /dev/trapless: sets rings up, fills their memory, enters,
 * serves, asks and bends the mapping. Each operation takes its arguments from the bytes behind it.
 * What disturbs a program stands in disturbances.c.
 *
 * A program that may be in supervisor mode keeps to calls and pointers that cannot change its own
 * code, stack or tables: at level 0 such a mistake is nobody's fault but the program's.
 */
#include "operations.h"

#include <poll.h>
#include <linux/stat.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "calls.h"
#include "int80.h"

static struct ring rings[RINGS];
static struct tl_completions *completions[RINGS];	/* of the ring in the same place, or NULL */
char scratch[SCRATCH + SAFE_BYTES] __attribute__((aligned(4096)));
static const char *const directory_paths[] = { "/proc/self", "/", "/dev", "." };
static int pipe_ends[2], zero, null, event, set, directories[4];

/* Calls that change nothing which a program's own code stands on. */
static const uint32_t safe_calls[] = {
	SYS_getpid, SYS_getppid, SYS_read, SYS_write, SYS_close, SYS_lseek, SYS_sched_yield,
	SYS_nanosleep, SYS_poll, SYS_openat, SYS_fstat, SYS_gettid, SYS_clock_gettime, SYS_dup,
	SYS_uname, SYS_futex, SYS_pread64, SYS_getcwd, SYS_kill, SYS_pipe,
};

/* Calls that are of use to a fuzzer more often than one in 300. */
static const uint32_t useful_calls[] = {
	SYS_getpid, SYS_read, SYS_write, SYS_nanosleep, SYS_close, SYS_dup2, SYS_lseek, SYS_ioctl,
	SYS_munmap, SYS_mremap, SYS_pause, SYS_kill, SYS_tgkill, SYS_futex, SYS_poll, SYS_openat,
	SYS_rt_sigprocmask, SYS_io_setup, SYS_execve, SYS_fork, SYS_prctl, SYS_seccomp,
	SYS_exit, SYS_wait4, SYS_unshare, SYS_setresuid, SYS_close_range, SYS_userfaultfd,
	SYS_io_uring_enter, SYS_restart_syscall, SYS_rt_sigreturn, SYS_clock_nanosleep,
};

/* Calls with a signal mask, which is refused unless it is null, and their surroundings. */
static const uint32_t masked_calls[] = {
	SYS_ppoll, SYS_pselect6, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_io_pgetevents,
	SYS_epoll_ctl, SYS_epoll_wait, SYS_eventfd2,
};

void operations_init(const struct input *input)
{
	struct random random = random_seeded(input->length);

	for (size_t i = 0; i < SCRATCH; i += 8)
		*(uint64_t *)(scratch + i) = i % 24 ? random_below(&random, 8) : 100000;
	zero = open("/dev/zero", O_RDONLY);
	null = open("/dev/null", O_WRONLY);
	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++)
		directories[i] = open(directory_paths[i], O_RDONLY | O_DIRECTORY);
	if (pipe(pipe_ends))
		pipe_ends[0] = pipe_ends[1] = -1;
	event = eventfd(0, EFD_NONBLOCK);
	set = epoll_create1(0);
}

struct ring *take_ring(struct script *script)
{
	return &rings[script_take(script) % RINGS];
}

uint32_t take_number(struct script *script)
{
	uint8_t byte = script_take(script);

	if (supervised)
		return CHOOSE(safe_calls, byte);
	if (byte < 160)
		return CHOOSE(useful_calls, byte);
	if (byte >= 172 && byte < 176)
		return TL_NR_SCANDIR;
	if (byte < 176)
		return CHOOSE(masked_calls, byte);
	byte = script_take(script);
	if (byte == 255)
		return 512 + script_take(script) * 65599u;
	return calls[(byte + (script_take(script) & 1) * 256u) % CALLS_COUNT].nr;
}

/* An argument of any call: a kind, and a byte that makes it more exact. */
uint64_t take_argument(struct script *script)
{
	uint8_t kind = script_take(script), more = script_take(script);
	const struct ring *ring = &rings[more % RINGS];

	if (supervised)
		kind = (uint8_t)(kind % 5);
	switch (kind % 16) {
	case 0: return more;
	case 1: return (uint64_t)scratch + more * 128u;
	case 2: return (uint64_t)(more & 1 ? pipe_ends[more >> 1 & 1] : more & 4 ?
				  more & 2 ? event : set : more & 2 ? zero : null);
	case 3: return more % 2 ? (uint64_t)-1 : 0;
	case 4: return more * 16u;
	case 5: return (uint64_t)ring->fd;
	case 6: return (uint64_t)ring->requests + more * 16u;
	case 7: return (uint64_t)fault_page() + more;
	case 8: return 1ull << more % 64;
	case 9: return (uint64_t)-(int64_t)more;
	case 10: return 0xffff888000000000u + more * 4096ull;
	case 11: return (uint64_t)TL_WAIT(more >> 4, more & 15);
	case 12: return (uint64_t)getpid();
	case 13: return TL_IOC_INFO + (more % 12u) - 1;
	case 14: return (uint64_t)scratch + SCRATCH - more;
	default: return more * 0x0101010101010101u;
	}
}

/* ---- Rings --------------------------------------------------------------------------------- */

static void make_ring(struct script *script)
{
	struct ring *ring = take_ring(script);
	uint8_t how = script_take(script);
	unsigned int entries = 1u << (how >> 3 & 7);
	unsigned int flags = how & 1 ? TL_SETUP_WORKERS : 0;
	int fd = (int)sys(SYS_openat, AT_FDCWD, TL_DEVICE, O_RDWR | O_CLOEXEC);
	size_t bytes;
	void *map;

	if (flags && how & 128)
		flags |= TL_SETUP_COMPLETIONS;
	if (how & 4)
		entries = how & 8 ? 4096 : entries * 16;
	if (fd < 0 || device_setup(fd, entries, flags, how & 2 ? TL_SPIN_US_MAX : 0)) {
		sys(SYS_close, fd);
		return;
	}
	bytes = TL_RING_BYTES(entries);
	if (flags & TL_SETUP_COMPLETIONS)
		bytes += TL_RING_COMPLETIONS_BYTES(entries);
	map = (void *)sys(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (is_error(map)) {
		sys(SYS_close, fd);
		return;
	}
	/* The one that was here stays open and mapped, or goes. */
	if (how & 64 && ring->requests)
		sys(SYS_close, ring->fd);
	*ring = (struct ring){
		.fd = fd, .entries = entries, .requests = map,
		.submit = (uint32_t *)((char *)map + TL_RING_SUBMIT_OFFSET(entries)),
	};
	completions[ring - rings] = NULL;
	if (flags & TL_SETUP_COMPLETIONS)
		completions[ring - rings] = (void *)((char *)map +
						     TL_RING_COMPLETIONS_OFFSET(entries));
}

static void setup_garbage(struct script *script)
{
	struct tl_setup setup = {
		.size = script_take(script), .flags = script_take(script) & 3u,
		.entries = 1u << script_take(script) % 32, .spin_us = script_take(script) * 8u,
		.reserved = { script_take(script) / 128 },
	};
	long fd = sys(SYS_openat, AT_FDCWD, TL_DEVICE, O_RDWR);

	if (setup.size & 1)
		setup.size = sizeof(setup);
	sys(SYS_ioctl, fd, TL_IOC_SETUP, &setup);
	sys(SYS_ioctl, fd, TL_IOC_SETUP, &setup);
	sys(SYS_close, fd);
}

/* Mostly a directory that has not ended, and memory for some entries. */
static void fill_scan(struct script *script, struct tl_request *request)
{
	uint8_t how = script_take(script);
	int directory = directories[how % 4];

	if (how & 4)
		sys(SYS_lseek, directory, 0, SEEK_SET);
	request->args[0] = (uint64_t)directory;
	request->args[2] = request->args[2] ? request->args[2] : 1024;
	request->args[3] = how & 8 ? STATX_BASIC_STATS | STATX_BTIME : how * 0x1010101u;
	request->args[4] = how & 128 ? how & 127u : (how & 0x30u) << 9 | (how >> 6 & 1u);
}

void request_fill(struct script *script, struct tl_request *request)
{
	uint32_t nr = take_number(script), arguments = script_take(script) % 4;

	request->nr = nr;
	for (uint32_t i = 0; i < 6; i++)
		request->args[i] = i < arguments ? take_argument(script) : 0;
	if (nr == TL_NR_SCANDIR && arguments)
		fill_scan(script, request);
	if (supervised && request->args[2] > SAFE_BYTES)
		request->args[2] = SAFE_BYTES;
}

static void put(struct script *script, struct ring *ring, uint32_t slot)
{
	struct tl_request *request = &ring->requests[slot & (ring->entries - 1)];

	request_fill(script, request);
	__atomic_store_n(&request->state, TL_SUBMITTED, __ATOMIC_RELEASE);
}

static void put_requests(struct script *script)
{
	struct ring *ring = take_ring(script);
	uint8_t how = script_take(script);

	if (!ring->requests)
		return;
	for (uint32_t i = 0; i <= (how >> 4 & 3); i++) {
		put(script, ring, (how & 15) + i);
		if (how & 64 || ring->next < 64)
			ring_submit(ring, (how & 15) + i);
	}
}

/* Bytes of a ring as they come. */
static void put_garbage(struct script *script)
{
	struct ring *ring = take_ring(script);
	uint32_t at = script_take(script);

	if (!ring->requests)
		return;
	if (at & 1)
		ring->requests[at >> 1 & (ring->entries - 1)].state = script_take(script) % 5;
	else
		ring->submit[at >> 1 & (ring->entries - 1)] = script_take(script) * 0x01000001u;
}

static void enter_batch(struct script *script)
{
	struct ring *ring = take_ring(script);
	uint8_t where = script_take(script);

	ring_batch(ring, where & 15, (where >> 4) + 1u);
}

static void enter_notify(struct script *script)
{
	ring_notify(take_ring(script), script_take(script) % 8 + 1u);
}

static void enter_wait(struct script *script)
{
	struct ring *ring = take_ring(script);
	uint8_t how = script_take(script);

	ring_wait(ring, how & 15, how >> 4);
}

/* A wait that ends by itself, after 15 ms at most. */
static void enter_wait_briefly(struct script *script)
{
	struct ring *ring = take_ring(script);
	uint8_t how = script_take(script), time = script_take(script);

	enter(ring, TL_WAIT_US(how & 15, how >> 4, time & 128 ? time & 15 : time * 128u),
	      TL_ENTER_WAIT);
}

static void cancel(struct script *script)
{
	struct ring *ring = take_ring(script);
	uint32_t slot = script_take(script);
	uint8_t submitted = TL_SUBMITTED;

	if (ring->requests)
		__atomic_compare_exchange_n(&ring->requests[slot & (ring->entries - 1)].state,
					    &submitted, TL_CANCELED, false, __ATOMIC_ACQ_REL,
					    __ATOMIC_RELAXED);
}

/* Wants to be told of completions, or takes some. */
static void arm(struct script *script)
{
	struct ring *ring = take_ring(script);
	struct tl_completions *queue = completions[ring - rings];
	uint8_t how = script_take(script);
	uint32_t *slots = (uint32_t *)(queue + 1);

	if (!queue)
		return;
	__atomic_store_n(&queue->armed, how & 8 ? how * 0x01010101u : how & 1, __ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < ring->entries && how & 2; i++)
		__atomic_exchange_n(&slots[i], 0, __ATOMIC_ACQUIRE);
	if (how & 4)
		sys(SYS_read, event, scratch, 8);
}

static void wake_pollers(struct script *script)
{
	struct ring *ring = take_ring(script);
	uint8_t how = script_take(script);

	sys(SYS_ioctl, ring->fd, how & 16 ? TL_IOC_WAKE : TL_IOC_RING,
	    how & 7 ? (uint64_t)(uintptr_t)ring->requests : take_argument(script));
	if (how & 8)
		event = eventfd(how >> 4, how & 128 ? 0 : EFD_NONBLOCK);
}

/* The set of descriptors that a scheduler waits for: an event counter, a pipe, a ring, the set. */
static void watch(struct script *script)
{
	uint8_t how = script_take(script);
	const int watched[] = { event, pipe_ends[0], pipe_ends[1], take_ring(script)->fd, set };
	struct epoll_event wanted = { .events = EPOLLIN | (how & 8 ? EPOLLONESHOT : EPOLLOUT) };

	sys(SYS_epoll_ctl, set, how >> 6 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, CHOOSE(watched, how),
	    &wanted);
	if (how & 16)
		sys(SYS_epoll_wait, set, scratch + 4096, 4, 0);
}

static void enter_garbage(struct script *script)
{
	struct ring *ring = take_ring(script);
	uint64_t argument = take_argument(script);

	if (script_take(script) & 1 && !supervised)
		int80(INT80_LSEEK, ring->fd, (int)argument, script_take(script) % 4);
	else
		enter(ring, (long)argument, script_take(script) % 4);
}

static void serve(struct script *script)
{
	struct ring *ring = take_ring(script);

	ring_ioctl(ring, TL_IOC_ENTER);
}

static void shut(struct script *script)
{
	ring_ioctl(take_ring(script), TL_IOC_EXIT);
}

static void ask(struct script *script)
{
	static const uint32_t commands[] = { TL_IOC_INFO, TL_IOC_STATS, TL_IOC_SUPERVISOR };
	struct ring *ring = take_ring(script);
	uint8_t which = script_take(script);
	uint32_t *to = (uint32_t *)(scratch + 8192);

	*to = script_take(script);
	sys(SYS_ioctl, ring->fd, CHOOSE(commands, which),
	    which & 64 && !supervised ? take_argument(script) : (uint64_t)to);
}

static void list_processes(struct script *script)
{
	struct tl_processes list = {
		.size = sizeof(list), .entry_size = script_take(script) * 4u,
		.count = script_take(script), .entries = (uint64_t)scratch,
	};

	if (list.count > 32 && !supervised)
		list.entries = take_argument(script);
	list.count = supervised ? list.count % 16 : list.count;
	sys(SYS_ioctl, take_ring(script)->fd, TL_IOC_PROCESSES, &list);
}

static void switch_garbage(struct script *script)
{
	struct tl_switch request = {
		.size = sizeof(request), .mode = script_take(script) % 3,
		.pid = script_take(script) % 4, .flags = script_take(script) % 32,
	};

	sys(SYS_ioctl, take_ring(script)->fd, TL_IOC_SWITCH, &request);
}

static void ioctl_garbage(struct script *script)
{
	uint32_t command = _IOC(script_take(script) & 3, TL_IOC_MAGIC, script_take(script) % 12,
				script_take(script));

	sys(SYS_ioctl, take_ring(script)->fd, command, take_argument(script));
}

/* ---- Descriptors and mappings ---------------------------------------------------------------- */

static void swap(struct script *script)
{
	int from = take_ring(script)->fd, to = take_ring(script)->fd;
	uint8_t how = script_take(script);

	if (how & 1)
		sys(SYS_dup2, how & 2 ? null : from, to);
	else
		sys(SYS_close, to);
}

static void bend(struct script *script)
{
	struct ring *ring = take_ring(script);
	uint8_t how = script_take(script);
	char *map = (char *)ring->requests;
	size_t bytes = TL_RING_BYTES(ring->entries ? ring->entries : 1);

	switch (how % 6) {
	case 0:
		sys(SYS_mprotect, map, 4096, how >> 4);
		break;
	case 1:
		sys(SYS_mremap, map, bytes, (how >> 4) * 4096, MREMAP_MAYMOVE);
		break;
	case 2:
		sys(SYS_madvise, map, bytes, script_take(script) % 26);
		break;
	case 3:
		sys(SYS_munmap, map, how & 64 ? bytes : 4096);
		break;
	case 4:
		sys(SYS_mmap, how & 64 ? map : NULL, bytes, how >> 4 & 7,
		    how & 64 ? MAP_SHARED | MAP_FIXED : how >> 7 ? MAP_PRIVATE : MAP_SHARED,
		    ring->fd, (script_take(script) % 3) * 4096);
		break;
	default:
		sys(SYS_mlock, map, bytes);
	}
}

static void rest(struct script *script)
{
	uint8_t us = script_take(script);

	if (us & 1)
		usleep(us * 20u);
	else
		sched_yield();
}

static void call_plainly(struct script *script)
{
	uint32_t nr = take_number(script);
	uint64_t a = take_argument(script), b = take_argument(script);

	sys(nr, a, b, supervised ? SAFE_BYTES / 4 : take_argument(script));
}

static const struct {
	operation make;
	bool safe;	/* for a program that may be in supervisor mode */
} operations[] = {
	{ make_ring, true }, { put_requests, true }, { enter_batch, true }, { put_requests, true },
	{ enter_notify, true }, { enter_wait, true }, { serve, true }, { shut, true },
	{ put_garbage, true }, { setup_garbage, true }, { enter_garbage, true }, { ask, true },
	{ list_processes, true }, { ioctl_garbage, false }, { swap, true }, { bend, false },
	{ rest, true }, { call_plainly, true }, { switch_garbage, true },
	{ disturb_thread, true }, { disturb_thread, true }, { disturb_process, true },
	{ disturb_filter, true }, { disturb_answer, true }, { disturb_trace, true },
	{ disturb_dispatch, true }, { disturb_fail, true }, { disturb_memory, true },
	{ disturb_signal, true }, { disturb_fault, true }, { disturb_switch, true },
	{ disturb_probes, true }, { disturb_identity, false }, { enter_batch, true },
	/* Those behind FIRST_OPERATIONS came later. */
	{ put_steps, true }, { enter_program, true }, { put_steps, true }, { put_program, true },
	{ enter_wait_briefly, true }, { cancel, true }, { arm, true }, { wake_pollers, true },
	{ watch, true }, { put_program, true }, { enter_program, true },
};

#define OPERATIONS (sizeof(operations) / sizeof(*operations))
#define FIRST_OPERATIONS 34u
#define FIRST_BYTES 204u	/* these mean what they meant before: old programs stay of use */

void operation_make(struct script *script)
{
	uint8_t byte = script_take(script);
	size_t which = byte % FIRST_OPERATIONS;

	if (byte >= FIRST_BYTES)
		which = FIRST_OPERATIONS + byte % (OPERATIONS - FIRST_OPERATIONS);
	if (!supervised || operations[which].safe)
		operations[which].make(script);
}
