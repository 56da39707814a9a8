// SPDX-License-Identifier: GPL-2.0-only
/*
 * tl_psc_cancel() does not take a program of which a worker has made some steps before it left,
 * neither while the module has it nor when the library's own workers go on with it: those make the
 * rest. A program that nobody has begun is canceled.
 */
#include "check.h"

#include <trapless.h>

static struct tl_psc *psc;
static pid_t worker_id;
static uint64_t word;

/* Serves until a signal comes. */
static void *serve_once(void *unused)
{
	__atomic_store_n(&worker_id, (pid_t)sys(SYS_gettid), __ATOMIC_RELEASE);
	CHECK_EQ(tl_psc_enter(psc), -EINTR);
	return unused;
}

/* Other rights than the requester's: the module refuses it, and so the ring leaves the module. */
static void *serve_with_other_rights(void *unused)
{
	CHECK_EQ(sys(SYS_setresuid, 1000, 1000, 1000), 0);
	CHECK(tl_psc_enter(psc) >= 0);
	return unused;
}

int main(void)
{
	struct tl_request program[3] = { TL_REQUEST(TL_NR_INCREASE, &word, 1) };
	struct tl_request idle[1] = { TL_REQUEST(SYS_getppid) };
	int pipe_fd[2], slot, other;
	pthread_t first, second;
	int64_t result;
	char byte;

	MUST(pipe(pipe_fd));
	on_signal(SIGUSR1, count_signal, SA_RESTART);
	CHECK_EQ(tl_psc_create(&psc, 4, 0, TL_MODULE), 0);
	program[1] = TL_REQUEST(SYS_read, pipe_fd[0], &byte, 1);
	program[2] = TL_REQUEST(TL_NR_INCREASE, &word, 1);
	slot = tl_psc_add_program(psc, program, 3, 10);
	CHECK_EQ(tl_psc_notify(psc), 1);
	CHECK_EQ(pthread_create(&first, NULL, serve_once, NULL), 0);
	WAIT_UNTIL(__atomic_load_n(&word, __ATOMIC_RELAXED) == 1, "word %lu", word);
	wait_asleep(worker_id);
	CHECK_EQ(pthread_kill(first, SIGUSR1), 0);
	CHECK_EQ(pthread_join(first, NULL), 0);
	CHECK_EQ(tl_psc_cancel(psc, (unsigned int)slot), 0);
	other = tl_psc_add_program(psc, idle, 1, 10);
	CHECK_EQ(tl_psc_notify(psc), 1);

	CHECK_EQ(pthread_create(&second, NULL, serve_with_other_rights, NULL), 0);
	WAIT_UNTIL(tl_psc_backend(psc) == TL_BACKEND_PLAIN, "backend %d", tl_psc_backend(psc));
	CHECK_EQ(tl_psc_cancel(psc, (unsigned int)slot), 0);
	CHECK_EQ(tl_psc_cancel(psc, (unsigned int)other), 1);
	MUST(write(pipe_fd[1], "x", 1));
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	CHECK_EQ(tl_psc_result(psc, (unsigned int)slot, &result), 1);
	CHECK_EQ(result, 2);
	CHECK_EQ(word, 2);
	tl_psc_destroy(psc);
	CHECK_EQ(pthread_join(second, NULL), 0);
	return 0;
}
