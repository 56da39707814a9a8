// SPDX-License-Identifier: GPL-2.0-only
/*
 * The three requests of supervisor mode answer nonsense by an errno and change nothing: sizes,
 * modes, flags, reserved fields, pointers, process IDs that are none, a thread's or a kernel
 * thread's. Random bytes are no worse.
 */
#include "random.h"
#include "supervisor.h"

#define RANDOM_ROUNDS 20000

static long request(unsigned long code, void *argument)
{
	return sys(SYS_ioctl, supervisor_fd(), code, argument);
}

static const struct tl_switch good = {
	.size = sizeof(good), .mode = TL_MODE_SUPERVISOR,
};

#define CHECK_SWITCH(want, ...) do {						\
	struct tl_switch asked_ = good;						\
										\
	__VA_ARGS__;								\
	CHECK_EQ(switch_ioctl(&asked_), want);					\
	CHECK_EQ(cpl(), 3);							\
} while (0)

static void bad_switches(void)
{
	CHECK_SWITCH(-EINVAL, asked_.size = 0);
	CHECK_SWITCH(-EINVAL, asked_.size = 4);
	CHECK_SWITCH(-EINVAL, asked_.size = sizeof(asked_) - 1);
	CHECK_SWITCH(-EINVAL, asked_.mode = 2);
	CHECK_SWITCH(-EINVAL, asked_.mode = UINT32_MAX);
	CHECK_SWITCH(-EINVAL, asked_.flags = TL_SWITCH_FLAGS + 1);
	CHECK_SWITCH(-EINVAL, asked_.flags = 1u << 31);
	CHECK_SWITCH(-EINVAL, asked_.mode = TL_MODE_USER, asked_.flags = TL_SWITCH_EXEC);
	for (int i = 0; i < 3; i++)
		CHECK_SWITCH(-EINVAL, asked_.reserved[i] = 1);
	for (unsigned long address = 0; address < 4; address++)
		CHECK_EQ(request(TL_IOC_SWITCH, (void *)(address * 0x1111111111111111ul)), -EFAULT);
}

static void *sleep_until(void *barrier)
{
	pthread_barrier_wait(barrier);
	pthread_barrier_wait(barrier);
	return NULL;
}

/* The ID of a kernel thread, by its name: kthreadd is always there. */
static pid_t kernel_thread(void)
{
	char text[64];

	CHECK(read_file("/proc/2/comm", text, sizeof(text)) > 0);
	CHECK(!strcmp(text, "kthreadd\n"));
	return 2;
}

static void bad_processes(void)
{
	struct tl_switch asked = good;
	pthread_barrier_t barrier;
	pthread_t thread;
	pid_t dead;

	CHECK_SWITCH(-EINVAL, asked_.pid = -1);
	CHECK_SWITCH(-EINVAL, asked_.pid = INT32_MIN);
	CHECK_SWITCH(-ESRCH, asked_.pid = INT32_MAX);
	dead = child_start(sync);
	MUST(waitid(P_PID, (id_t)dead, &(siginfo_t){ 0 }, WEXITED | WNOWAIT));
	asked.pid = dead;
	CHECK_EQ(switch_ioctl(&asked), -ENOEXEC);	/* a zombie */
	CHECK_EQ(asked.refusal, TL_REFUSED_KERNEL_THREAD);
	child_wait(dead);
	CHECK_SWITCH(-ESRCH, asked_.pid = dead);
	asked.pid = kernel_thread();
	CHECK_EQ(switch_ioctl(&asked), -ENOEXEC);
	CHECK_EQ(asked.refusal, TL_REFUSED_KERNEL_THREAD);

	pthread_barrier_init(&barrier, NULL, 2);
	CHECK_EQ(pthread_create(&thread, NULL, sleep_until, &barrier), 0);
	pthread_barrier_wait(&barrier);
	for (pid_t tid = getpid() + 1; tid < getpid() + 20; tid++)
		if (sys(SYS_tgkill, getpid(), tid, 0) == 0)
			CHECK_SWITCH(-ESRCH, asked_.pid = tid);
	pthread_barrier_wait(&barrier);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

static void bad_lists(void)
{
	struct tl_process entry = { .pid = 4711 };
	struct tl_processes list = {
		.size = sizeof(list), .entry_size = sizeof(entry), .count = 1,
		.entries = (uintptr_t)&entry,
	}, asked;
	struct tl_supervisor info = { .size = 0 };

	asked = list, asked.size = 0;
	CHECK_EQ(request(TL_IOC_PROCESSES, &asked), -EINVAL);
	asked = list, asked.reserved = 1;
	CHECK_EQ(request(TL_IOC_PROCESSES, &asked), -EINVAL);
	asked = list, asked.entry_size = 0;
	CHECK_EQ(request(TL_IOC_PROCESSES, &asked), -EINVAL);
	asked = list, asked.entries = 8;
	CHECK_EQ(request(TL_IOC_PROCESSES, &asked), -EFAULT);
	asked = list, asked.count = UINT32_MAX, asked.entries = 0x7ffffffff000;
	CHECK(request(TL_IOC_PROCESSES, &asked) < 0);
	CHECK_EQ(request(TL_IOC_PROCESSES, NULL), -EFAULT);
	CHECK_EQ(request(TL_IOC_SUPERVISOR, NULL), -EFAULT);
	CHECK_EQ(request(TL_IOC_SUPERVISOR, &info), -EINVAL);
	asked = list, asked.count = 0, asked.entries = 0;
	CHECK_EQ(request(TL_IOC_PROCESSES, &asked), 0);	/* how many are there? */
	CHECK_EQ(asked.count, 0);
}

/* Whatever the bytes say, others' processes are left out: pid 0 or one that is not there. */
static void random_bytes(void)
{
	static const unsigned long codes[] = {
		TL_IOC_SWITCH, TL_IOC_SUPERVISOR, TL_IOC_PROCESSES,
	};
	struct random random = random_seeded(now_us());
	uint32_t words[32];

	for (int i = 0; i < RANDOM_ROUNDS; i++) {
		unsigned long code = codes[random_below(&random, 3)];

		for (int k = 0; k < 32; k++) {
			words[k] = (uint32_t)random_next(&random);
			if (random_below(&random, 2))
				words[k] &= 3;
		}
		if (code == TL_IOC_SWITCH) {
			words[0] = random_below(&random, 64);
			words[2] |= 0x40000000;
		} else if (code == TL_IOC_PROCESSES) {
			words[4] = 0x1000;	/* entries: an address that is nobody's */
			words[5] = 0;
		}
		CHECK(request(code, words) <= 0);
	}
	CHECK_EQ(cpl(), 3);
}

int main(void)
{
	supervisor_need();
	bad_switches();
	bad_processes();
	bad_lists();
	random_bytes();
	CHECK_EQ(supervisor_info().processes, 0);
	enter_supervisor(0);	/* and good ones still work */
	return 0;
}
