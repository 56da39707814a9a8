// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads of the program's own that serve a ring: a signal brings them home with -EINTR and they
 * may enter again; the end of the ring brings them home with what they have served; a requester
 * that waits is woken by a signal too.
 */
#include "lib_check.h"

static struct tl_psc *psc;
static volatile sig_atomic_t handled;

static void handler(int signal)
{
	(void)signal;
	handled++;
}

static pid_t server_tid;
static int interruptions;
static long served;

static void *server(void *arg)
{
	(void)arg;
	__atomic_store_n(&server_tid, gettid(), __ATOMIC_SEQ_CST);
	while ((served = tl_psc_enter(psc)) == -EINTR)
		__atomic_fetch_add(&interruptions, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static pthread_t server_start(void)
{
	pthread_t thread;

	server_tid = 0;
	interruptions = 0;
	CHECK_EQ(pthread_create(&thread, NULL, server, NULL), 0);
	while (!__atomic_load_n(&server_tid, __ATOMIC_SEQ_CST))
		sched_yield();
	return thread;
}

static void signal_brings_worker_home(void)
{
	pthread_t thread;
	int64_t result;

	CHECK_EQ(tl_psc_regist(&psc, 8, 0, LIB_FLAGS), 0);
	on_signal(SIGUSR1, handler, SA_RESTART);
	thread = server_start();
	wait_asleep(server_tid);
	CHECK_EQ(pthread_kill(thread, SIGUSR1), 0);
	for (int i = 0; !__atomic_load_n(&interruptions, __ATOMIC_SEQ_CST); i++) {
		CHECK(i < 5000);
		sleep_ms(1);
	}
	CHECK_EQ(TL_PSC_ADD(psc, SYS_getpid), 0);
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	CHECK_EQ(tl_psc_result(psc, 0, &result), 1);
	CHECK_EQ(result, getpid());
	tl_psc_exit(psc);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(served, 1);
	CHECK_EQ(interruptions, 1);
}

static void signal_wakes_requester(void)
{
	int pipes[2];
	char byte;

	MUST(pipe(pipes));
	psc = psc_new(8, 0, 1);
	on_signal(SIGALRM, handler, 0);
	handled = 0;
	TL_PSC_ADD(psc, SYS_read, pipes[0], &byte, 1);
	alarm_ms(30, 0);
	CHECK_EQ(tl_psc_wait(psc, 0), -EINTR);
	CHECK_EQ(handled, 1);
	MUST(write(pipes[1], "q", 1));
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	CHECK_EQ(byte, 'q');
	tl_psc_exit(psc);
	close(pipes[0]);
	close(pipes[1]);
}

static void end_finds_workers_busy(void)
{
	struct timespec nap = { 0, 30000000 };
	uint64_t start_ms = now_ms();

	psc = psc_new(8, 0, 2);
	for (int i = 0; i < 2; i++)
		TL_PSC_ADD(psc, SYS_nanosleep, &nap, NULL);
	CHECK_EQ(tl_psc_notify(psc), 2);
	sleep_ms(10);
	/* What is under way finishes. */
	tl_psc_exit(psc);
	CHECK(now_ms() - start_ms >= 30);
}

static void end_finds_nothing_begun(void)
{
	CHECK_EQ(tl_psc_regist(&psc, 8, 0, LIB_FLAGS), 0);
	TL_PSC_ADD(psc, SYS_kill, getpid(), SIGKILL);
	CHECK_EQ(tl_psc_notify(psc), 1);
	tl_psc_exit(psc);
}

int main(void)
{
	signal_brings_worker_home();
	signal_wakes_requester();
	end_finds_workers_busy();
	end_finds_nothing_begun();
	return 0;
}
