// SPDX-License-Identifier: GPL-2.0-only
/*
 * What changes the kernel's code, for as long as one likes: probes and events come and go, and the
 * module is unloaded and loaded again, while processes make batches and parallel calls, CPUs go and
 * come and memory is compacted. Every call has its result, every part goes on, and nothing keeps
 * the module. supervisor_soak has the rest: supervisor mode excludes probes.
 *
 * TL_SOAK_S says for how long, 6 seconds if it does not; `make soak` gives minutes.
 */
#include "module.h"
#include "random.h"
#include "ring.h"

#define SECONDS 6
#define SLOTS 16
#define USERS 2
#define CHANGES 20		/* of probes, between two loads of the module */
#define PARAMETERS "/sys/module/trapless/parameters/"
#define CPU1 "/sys/devices/system/cpu/cpu1/online"

static struct shared {
	volatile bool end, pause;
	volatile uint64_t rounds[USERS];
	volatile bool resting[USERS];
} *shared;

static void make_calls(void)
{
	struct ring batches = ring_open(SLOTS), workers = worker_ring_open(SLOTS);
	struct worker worker = { .again = true };

	worker_start(&worker, &workers);
	for (int round = 0; round < 20 && !shared->pause; round++) {
		for (unsigned int slot = 0; slot < SLOTS; slot++) {
			ring_put(&batches, slot, SYS_getpid);
			ring_queue(&workers, slot, SYS_getpid);
		}
		CHECK_EQ(ring_notify(&workers, SLOTS), SLOTS);
		CHECK_EQ(ring_batch(&batches, 0, SLOTS), SLOTS);
		CHECK_EQ(ring_wait(&workers, 0, 0), 0);
		for (unsigned int slot = 0; slot < SLOTS; slot++) {
			CHECK_DONE(&batches, slot, getpid());
			CHECK_DONE(&workers, slot, getpid());
		}
	}
	workers_end(&workers, &worker, 1);
	ring_close(&batches);
	ring_close(&workers);
}

static void use(size_t which)
{
	while (!shared->end) {
		shared->resting[which] = shared->pause;
		if (shared->pause) {
			sleep_ms(5);
			continue;
		}
		make_calls();
		shared->rounds[which]++;
	}
	_exit(0);
}

static void disturb(void)
{
	while (!shared->end) {
		write_file("/proc/sys/vm/compact_memory", "1");
		write_file("/proc/sys/vm/drop_caches", "2");
		if (access(CPU1, W_OK) == 0) {
			CHECK(write_file(CPU1, "0") > 0);
			sleep_ms(50);
			CHECK(write_file(CPU1, "1") > 0);
		}
		sleep_ms(400);
	}
	_exit(0);
}

static void change_probes(struct random *random)
{
	static const char *const events[] = {
		/* not sys_enter or sys_exit: batches answer -EBUSY then */
		"sched_switch,vfs_read", "sched_wakeup,sched_migrate_task,sched_process_fork",
		"sched_process_exec,sched_process_exit,signal_generate,signal_deliver",
		"irq_handler_entry,irq_handler_exit,softirq_entry,softirq_exit",
		"page_fault_user,local_timer_entry,sched_update_nr_running_tp",
		"vfs_read:dx,vfs_write:8(di)", "vfs_read:count=dx", "vfs_read+0:si",
		/* and words that are refused */
		"no_such_place", "vfs_read:zz", "vfs_read:8(di", "vfs_read+1", "vfs_read,vfs_read",
		"vfs_read:a:b:c:d:e:f:g", "asm_exc_nmi", ",",
	};
	const uint32_t count = sizeof(events) / sizeof(*events);
	char text[16];

	snprintf(text, sizeof(text), "%u", random_below(random, 16));
	write_file(PARAMETERS "events", events[random_below(random, count)]);
	write_file(PARAMETERS "events_kb", random_below(random, 8) ? "64" : "3");
	write_file(PARAMETERS "probes", text);
	CHECK(read_file(PARAMETERS "probes", text, sizeof(text)) > 0);
	sleep_ms(random_below(random, 40));
}

/* Out and in again, with everybody's rings closed; once with probes, once without. */
static void reload(struct random *random)
{
	bool probes = random_below(random, 2);

	shared->pause = true;
	for (size_t i = 0; i < USERS; i++) {
		WAIT_UNTIL(shared->resting[i] || waitpid(-1, NULL, WNOHANG) > 0,
			   "user %zu does not rest", i);
		if (!shared->resting[i])
			FAIL("a user of the module has ended");
	}
	CHECK(write_file(PARAMETERS "probes", "0") > 0);
	WAIT_UNTIL(module_references() == 0, "the module has %d users left", module_references());
	CHECK_EQ(module_unload(), 0);
	CHECK_EQ(module_load(probes ? "probes=3" : ""), 0);
	shared->pause = false;
}

int main(void)
{
	uint64_t seconds = getenv("TL_SOAK_S") ? strtoul(getenv("TL_SOAK_S"), NULL, 10) : SECONDS;
	uint64_t end, loads = 0, changes = 0;
	struct random random = random_seeded(random_choose_seed());
	pid_t pids[USERS + 1];

	module_need_probes();
	shared = shared_memory(sizeof(*shared));
	for (size_t i = 0; i <= USERS; i++) {
		pids[i] = MUST(fork());
		if (pids[i] == 0 && i < USERS)
			use(i);
		else if (pids[i] == 0)
			disturb();
	}
	for (end = now_ms() + seconds * 1000; now_ms() < end; loads++) {
		for (int i = 0; i < CHANGES && now_ms() < end; i++, changes++)
			change_probes(&random);
		reload(&random);
		CHECK_EQ(waitpid(-1, NULL, WNOHANG), 0);
		printf("%llu loads, %llu changes of probes, %llu rounds of calls\n",
		       (unsigned long long)loads + 1, (unsigned long long)changes,
		       (unsigned long long)(shared->rounds[0] + shared->rounds[1]));
		fflush(stdout);
	}
	shared->end = true;
	for (size_t i = 0; i <= USERS; i++)
		CHECK_EXITED(child_wait(pids[i]), 0);
	CHECK(shared->rounds[0] > 0 && shared->rounds[1] > 0);
	CHECK(write_file(PARAMETERS "probes", "0") > 0);
	module_reload();
	return 0;
}
