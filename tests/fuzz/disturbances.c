// SPDX-License-Identifier: GPL-2.0-only
/*
 * Operations of a fuzzed program that are not about /dev/trapless themselves: threads, processes,
 * filters, tracers, user dispatch, signals, faults that user space serves or that are injected,
 * memory pressure, and what the watcher does for the program (fuzz.c): switching it to supervisor
 * mode and probes. Each may fail; nobody looks at the result.
 */
#include "fuzzed_program.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/user.h>

#define STACK_BYTES 65536
#define THREADS_MAX 16
#define FAULT_BYTES 16384
#define PRESSURE_BYTES (24u << 20)
#define TRACE_STOPS 12
#define SEIZE_OPTIONS (PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEEXIT)
#define WISH_POLLS 40		/* of 250 us: how long a program waits for the watcher */

static pid_t tids[THREADS_MAX];
static uint32_t tids_count;
static int listener = -1, fault_fd = -1;
static char *fault_memory;

/* ---- Threads and processes ------------------------------------------------------------------- */

static void enlist(void)
{
	uint32_t place = __atomic_fetch_add(&tids_count, 1, __ATOMIC_RELAXED);

	tids[place % THREADS_MAX] = (pid_t)sys(SYS_gettid);
}

/* The script of a thread: some operations from some byte on. */
static struct script branch(struct script *script)
{
	uint8_t at = script_take(script), count = script_take(script);

	return (struct script){
		.input = script->input, .depth = script->depth + 1, .left = count % 16 + 1u,
		.at = script->input->length ? at % script->input->length : 0,
	};
}

static int branch_run(void *argument)
{
	struct script script = *(struct script *)argument;

	enlist();
	script_run(&script);
	sys(SYS_exit, 0);
	return 0;
}

static void *thread_main(void *argument)
{
	branch_run(argument);
	return NULL;
}

static struct script *branch_copy(struct script *script)
{
	struct script *copy = malloc(sizeof(*copy));

	if (copy)
		*copy = branch(script);
	return copy;
}

void disturb_thread(struct script *script)
{
	struct script *copy = script->depth < DEPTH_MAX ? branch_copy(script) : NULL;
	pthread_attr_t attributes;
	pthread_t thread;

	if (!copy)
		return;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_create(&thread, &attributes, thread_main, copy);
}

/* Processes that share more or less with this one, and the program begun anew by exec. */
void disturb_process(struct script *script)
{
	static const int shared[] = {
		0, CLONE_VM | CLONE_VFORK, CLONE_VM, CLONE_VM | CLONE_FILES, CLONE_FILES,
		CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND,
	};
	uint8_t how = script_take(script);
	struct script *copy = script->depth < DEPTH_MAX ? branch_copy(script) : NULL;
	char *stack;
	int flags = shared[how % 6] | SIGCHLD;

	if (!copy)
		return;
	if (how % 32 == 31) {
		execl("/proc/self/exe", "fuzz", "--nothing", (char *)NULL);
		return;
	}
	stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack == MAP_FAILED)
		return;
	clone(branch_run, stack + STACK_BYTES, flags, copy);
}

void disturb_identity(struct script *script)
{
	uint8_t how = script_take(script);

	switch (how % 6) {
	case 0: sys(SYS_unshare, CLONE_FILES); break;
	case 1: sys(SYS_unshare, CLONE_NEWUSER); break;
	case 2: sys(SYS_setresuid, FUZZ_UID, FUZZ_UID, FUZZ_UID); break;
	case 3: sys(SYS_keyctl, 1, how & 64 ? "fuzz" : NULL); break;
	case 4: prctl(PR_SET_DUMPABLE, how >> 7); break;
	default: sys(SYS_unshare, how & 64 ? CLONE_FS : CLONE_SYSVSEM);
	}
}

/* ---- Filters and tracers --------------------------------------------------------------------- */

static const uint32_t filtered_calls[] = { SYS_getpid, SYS_read, SYS_nanosleep, SYS_write,
					   SYS_close, SYS_lseek, SYS_ioctl, SYS_getppid };

void disturb_filter(struct script *script)
{
	static const uint32_t actions[] = {
		SECCOMP_RET_ALLOW, SECCOMP_RET_LOG, SECCOMP_RET_TRACE | 5, SECCOMP_RET_USER_NOTIF,
		SECCOMP_RET_ERRNO | 5, SECCOMP_RET_ERRNO | 512, SECCOMP_RET_TRAP | 3,
		SECCOMP_RET_KILL_THREAD, SECCOMP_RET_KILL_PROCESS,
	};
	uint8_t how = script_take(script), number = script_take(script);
	uint32_t action = actions[how % 9], flags = number & 64 ? SECCOMP_FILTER_FLAG_TSYNC : 0;
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, filtered_calls[number % 8], 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(*code), code };
	long fd;

	if (action == SECCOMP_RET_USER_NOTIF)
		flags |= SECCOMP_FILTER_FLAG_NEW_LISTENER |
			 (flags ? SECCOMP_FILTER_FLAG_TSYNC_ESRCH : 0);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	fd = sys(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
	if (fd > 0 && flags & SECCOMP_FILTER_FLAG_NEW_LISTENER)
		listener = (int)fd;
}

/* Answers one request of a listener, also by numbers that the kernel uses for itself. */
void disturb_answer(struct script *script)
{
	static const int errors[] = { 0, -EPERM, -512, -513, -514, -515, -516, -35, -4095 };
	uint8_t how = script_take(script);
	struct seccomp_notif request = { 0 };
	struct seccomp_notif_resp response = { .error = errors[how % 9] };

	fcntl(listener, F_SETFL, O_NONBLOCK);
	if (how & 128) {
		sys(SYS_close, listener);
		return;
	}
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &request))
		return;
	response.id = request.id;
	if (how & 64)
		response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE, response.error = 0;
	ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
}

static void trace(pid_t target, uint8_t how)
{
	struct user_regs_struct registers;
	int status;

	if (ptrace(how & 1 ? PTRACE_SEIZE : PTRACE_ATTACH, target, 0,
		   how & 1 ? SEIZE_OPTIONS : 0))
		return;
	/* One that is not stopped now may stop in a filter's verdict. */
	if (how & 1 && how & 64)
		ptrace(PTRACE_INTERRUPT, target, 0, 0);
	for (int i = 0; i < TRACE_STOPS; i++) {
		if (waitpid(target, &status, __WALL) < 0 || !WIFSTOPPED(status))
			return;
		if (how & 2 && !supervised && !ptrace(PTRACE_GETREGS, target, 0, &registers)) {
			if (how & 4)
				registers.orig_rax = filtered_calls[how >> 3 & 7];
			if (how & 8)
				registers.rax = (unsigned long)-512 - how % 8u;
			if (how & 16)
				registers.rdi ^= how;
			ptrace(PTRACE_SETREGS, target, 0, &registers);
		}
		ptrace(how & 32 ? PTRACE_SINGLESTEP : PTRACE_SYSCALL, target, 0, 0);
	}
	if (how & 64)
		ptrace(PTRACE_DETACH, target, 0, 0);
}

/* A process of its own traces this thread or another for a while, then detaches or dies. */
void disturb_trace(struct script *script)
{
	uint8_t how = script_take(script);
	pid_t target = how & 128 ? tids[how % THREADS_MAX] : (pid_t)sys(SYS_gettid);
	pid_t pid = fork();

	if (pid == 0) {
		trace(target, how);
		_exit(0);
	}
}

/* With a range that holds all code nothing is dispatched, but all entry work is asked for. */
void disturb_dispatch(struct script *script)
{
	static char selector;
	uint8_t how = script_take(script);

	selector = how >> 2 & 1;
	prctl(PR_SET_SYSCALL_USER_DISPATCH, how & 1, how & 1 && !(how & 8) ? 1 : 0,
	      how & 1 && !(how & 8) ? (1ul << 47) - 4096 : 0, how & 1 ? &selector : NULL);
}

void disturb_signal(struct script *script)
{
	uint8_t how = script_take(script);
	sigset_t set;

	switch (how % 6) {
	case 0:
		alarm_ms(1 + how / 16u, how & 8 ? 3 : 0);
		break;
	case 1:
		sys(SYS_tgkill, getpid(), tids[how % THREADS_MAX], SIGUSR1);
		break;
	case 2:
		sigemptyset(&set);
		sigaddset(&set, SIGALRM);
		pthread_sigmask(how & 8 ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
		break;
	case 3:
		sys(SYS_tgkill, getpid(), tids[how % THREADS_MAX], SIGSTOP);
		kill(getpid(), SIGCONT);
		break;
	case 4:
		on_signal(SIGALRM, count_signal, how & 8 ? SA_RESTART : 0);
		break;
	default:
		kill(getpid(), how & 64 ? SIGUSR1 : SIGALRM);
	}
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* The n-th allocation or copy of this thread from now on fails, where the kernel can do that. */
void disturb_fail(struct script *script)
{
	uint8_t n = script_take(script);
	char text[8];

	snprintf(text, sizeof(text), "%u", n % 40u);
	write_file("/proc/thread-self/fail-nth", text);
}

void disturb_memory(struct script *script)
{
	uint8_t how = script_take(script);
	size_t bytes = how & 1 ? PRESSURE_BYTES : PRESSURE_BYTES / 8;
	char *memory;

	if (how & 4) {
		setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){ how << 10, how << 10 });
		return;
	}
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return;
	for (size_t i = 0; i < bytes; i += 4096)
		memory[i] = 1;
	if (how & 2)
		munmap(memory, bytes);
}

void *fault_page(void)
{
	return fault_memory;
}

static void fault_begin(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = {
		.range.len = FAULT_BYTES, .mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	char *memory = mmap(NULL, FAULT_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return;
	fault_fd = (int)sys(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	range.range.start = (uint64_t)memory;
	ioctl(fault_fd, UFFDIO_API, &api);
	ioctl(fault_fd, UFFDIO_REGISTER, &range);
	fault_memory = memory;
}

/* Memory whose faults wait until another operation serves them, or for ever. */
void disturb_fault(struct script *script)
{
	uint8_t how = script_take(script);
	struct uffdio_zeropage zero = {
		.range = { (uint64_t)fault_memory, FAULT_BYTES },
	};

	if (fault_fd < 0)
		fault_begin();
	else if (how & 64)
		sys(SYS_close, fault_fd);
	else
		ioctl(fault_fd, UFFDIO_ZEROPAGE, &zero);
}

/* ---- What the watcher does ------------------------------------------------------------------- */

static void wish(volatile uint32_t *what, uint32_t value)
{
	*what = value;
	for (int i = 0; i < WISH_POLLS && *what; i++)
		usleep(250);
}

void disturb_switch(struct script *script)
{
	uint8_t how = script_take(script);

	if (!supervised)
		return;
	mail->pid = how & 2 ? (uint32_t)getpid() : 0;
	wish(&mail->mode, 1 + (how & 1) + (how & 4 ? 0x100u : 0) + (how & 8 ? 0x200u : 0) +
			  (how & 16 ? 0x400u : 0));
}

void disturb_probes(struct script *script)
{
	wish(&mail->probes, 1 + script_take(script) % 16u);
}
