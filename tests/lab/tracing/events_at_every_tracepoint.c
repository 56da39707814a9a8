// SPDX-License-Identifier: GPL-2.0-only
/*
 * Events come from every tracepoint of the module's table, and from places of other forms: each
 * list is taken, its handlers run, and it goes again. The values are compared from outside, by the
 * tests of peek; a kernel with control-flow integrity checks here that each handler has its type.
 */
#include <sched.h>
#include <sys/mman.h>

#include "module.h"
#include "ring.h"

#define PARAMETERS "/sys/module/trapless/parameters/"
#define EVENTS "8"		/* the bit of `probes` that starts them */
#define PAGES 64
#define PAGE 4096

static const char *const lists[] = {
	"sched_switch,sched_waking,sched_wakeup,sched_wakeup_new,sched_migrate_task",
	"sched_update_nr_running_tp,sched_process_fork,sched_process_exec,sched_process_exit",
	"sys_enter,sys_exit,page_fault_user,page_fault_kernel,signal_generate,signal_deliver",
	"irq_handler_entry,irq_handler_exit,softirq_raise,softirq_entry,softirq_exit",
	"local_timer_entry,local_timer_exit,irq_work_entry,irq_work_exit",
	"reschedule_entry,reschedule_exit,call_function_entry,call_function_exit",
	"call_function_single_entry,call_function_single_exit",
	"vfs_read:count=dx:8(di):-0x10(si),vfs_write+0:di",
};

static void handle(int number)
{
	(void)number;
}

/* Touches fresh memory, from user mode and from the kernel. */
static void fault(void)
{
	char *pages = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int file = MUST(open("/dev/zero", O_RDONLY | O_CLOEXEC));

	CHECK(pages != MAP_FAILED);
	for (int i = 0; i < PAGES / 2; i++)
		pages[i * PAGE] = 1;
	CHECK_EQ(read(file, pages + PAGES / 2 * PAGE, PAGES / 2 * PAGE), PAGES / 2 * PAGE);
	CHECK_EQ(munmap(pages, PAGES * PAGE), 0);
	close(file);
}

static void work(void)
{
	cpu_set_t cpus, all;
	pid_t child = MUST(fork());

	if (child == 0) {
		execl("/bin/busybox", "busybox", "true", NULL);
		_exit(1);
	}
	CHECK_EXITED(child_wait(child), 0);
	CHECK_EQ(raise(SIGUSR1), 0);
	child = MUST(fork());
	if (child == 0)
		for (;;)
			pause();
	CHECK_EQ(kill(child, SIGKILL), 0);	/* comes to its end without information */
	CHECK_KILLED(child_wait(child), SIGKILL);
	fault();
	CHECK_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
	for (unsigned int cpu = 0; cpu < (unsigned int)CPU_COUNT(&all); cpu++) {
		CPU_ZERO(&cpus);
		CPU_SET(cpu, &cpus);
		CHECK_EQ(sched_setaffinity(0, sizeof(cpus), &cpus), 0);
		sleep_ms(10);
	}
	CHECK_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
}

int main(void)
{
	char text[16];

	module_need_probes();
	signal(SIGUSR1, handle);
	CHECK(write_file(PARAMETERS "events_kb", "64") > 0);
	for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++) {
		CHECK(write_file(PARAMETERS "events", lists[i]) > 0);
		if (write_file(PARAMETERS "probes", EVENTS) <= 0)
			FAIL("%s is not taken", lists[i]);
		CHECK(read_file(PARAMETERS "probes", text, sizeof(text)) > 0);
		CHECK_EQ(strtoul(text, NULL, 10), 8);
		work();
		CHECK(write_file(PARAMETERS "probes", "0") > 0);
	}
	module_reload();
	return 0;
}
