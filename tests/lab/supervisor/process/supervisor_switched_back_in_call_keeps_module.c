// SPDX-License-Identifier: GPL-2.0-only
/*
 * A wait of io_uring acts on requests without returning: a thread is switched back while it stays
 * in a call that was made in supervisor mode. Until that call has returned the module is in use.
 */
#include <linux/io_uring.h>
#include <poll.h>

#include "module.h"
#include "supervisor.h"

#define ENTRIES 4

static int ring, pipes[2][2];
static volatile int *waiting;

/* The ring's queues, mapped; two polls are put in. */
static void submit_polls(void)
{
	struct io_uring_params params = { 0 };
	struct io_uring_sqe *sqes;
	unsigned int *tail, *array;
	char *queue;

	ring = (int)sys(SYS_io_uring_setup, ENTRIES, &params);
	if (ring < 0)
		SKIP("io_uring_setup: %s", strerror(-ring));
	queue = MUST(mmap(NULL, params.sq_off.array + ENTRIES * sizeof(*array),
			  PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING));
	sqes = MUST(mmap(NULL, ENTRIES * sizeof(*sqes), PROT_READ | PROT_WRITE, MAP_SHARED, ring,
			 IORING_OFF_SQES));
	tail = (unsigned int *)(queue + params.sq_off.tail);
	array = (unsigned int *)(queue + params.sq_off.array);
	for (unsigned int i = 0; i < 2; i++) {
		sqes[i] = (struct io_uring_sqe){
			.opcode = IORING_OP_POLL_ADD, .fd = pipes[i][0], .poll32_events = POLLIN,
		};
		array[i] = i;
	}
	__atomic_store_n(tail, 2, __ATOMIC_RELEASE);
	CHECK_EQ(sys(SYS_io_uring_enter, ring, 2, 0, 0, NULL, 0), 2);
}

static void wait_for_both(void)
{
	submit_polls();
	enter_supervisor(0);
	close(supervisor_fd());
	reach_supervisor();
	*waiting = 1;
	CHECK_EQ(sys(SYS_io_uring_enter, ring, 0, 2, IORING_ENTER_GETEVENTS, NULL, 0), 0);
}

int main(void)
{
	struct tl_process process;
	int others;
	pid_t child;

	supervisor_need();
	others = module_references();
	waiting = shared_memory(sizeof(*waiting));
	for (int i = 0; i < 2; i++)
		MUST(pipe(pipes[i]));
	child = child_start(wait_for_both);
	while (!*waiting && !waitpid(child, NULL, WNOHANG))
		sleep_ms(1);
	if (!*waiting)
		SKIP("the child could not wait by io_uring");
	wait_asleep(child);
	CHECK_EQ(raw_switch_user(child), 0);
	MUST(write(pipes[0][1], "", 1));	/* it wakes, sees one event of two, sleeps on */
	wait_mode(child, TL_MODE_USER);
	wait_asleep(child);
	CHECK(process_find(child, &process));
	CHECK_EQ(process.threads, 1);
	CHECK_EQ(module_references(), others + 1);
	MUST(write(pipes[1][1], "", 1));
	CHECK_EXITED(child_wait(child), 0);
	/* The last reference may be dropped a moment after its process has ended. */
	WAIT_UNTIL(module_references() == others, "still %d references", module_references());
	return 0;
}
