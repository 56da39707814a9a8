/* SPDX-License-Identifier: GPL-2.0-only
 *
 * What test_stat.py and test_stat_calls_equal_strace.py count in a guest: a program whose children,
 * daemon, calls and page faults are known; one whose children have threads, and make no call that
 * depends on who is first; a server and its client; a process that makes calls without end.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGES 64
#define PAGE 4096ul
#define TO_SERVER "/tmp/to-server"
#define FROM_SERVER "/tmp/from-server"

static void make_calls(long calls)
{
	while (calls--)
		syscall(SYS_getppid);
}

static void touch_pages(void)
{
	volatile char *pages = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int i;

	for (i = 0; i < PAGES; i++)
		pages[i * PAGE] = 1;
}

/* A process of its own session, whose parent has ended; it makes its calls and then sleeps. */
static int begin_daemon(long calls)
{
	int done[2];
	char byte;

	if (pipe(done))
		return 1;
	if (fork() == 0) {
		setsid();
		if (fork() == 0) {
			make_calls(calls);
			close(done[0]);
			close(done[1]);
			for (;;)
				pause();
		}
		_exit(0);
	}
	close(done[1]);
	wait(NULL);
	return read(done[0], &byte, 1) != 0;
}

static int children(long count, long calls)
{
	while (count--) {
		if (fork() == 0) {
			touch_pages();
			make_calls(calls);
			_exit(0);
		}
		wait(NULL);
	}
	return begin_daemon(calls);
}

struct work {
	long calls;
	int done;
};

/* Says that it is done by a byte and does not end, as a join waits only for a thread that lives. */
static void *run_thread(void *given)
{
	const struct work *work = given;

	make_calls(work->calls);
	if (write(work->done, "", 1) != 1)
		_exit(1);
	for (;;)
		pause();
	return NULL;
}

static int run_threads(long count, long calls)
{
	struct work work = { .calls = calls };
	int done[2];
	long i;
	char byte;

	if (pipe(done))
		return 1;
	work.done = done[1];
	for (i = 0; i < count; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, run_thread, &work) ||
		    read(done[0], &byte, 1) != 1)
			return 1;
	}
	make_calls(calls);
	return 0;
}

static int threads(long count, long processes, long calls)
{
	int status;

	while (processes--) {
		if (fork() == 0)
			_exit(run_threads(count, calls));
		if (wait(&status) < 0 || status)
			return 1;
	}
	return run_threads(count, calls);
}

static int serve(void)
{
	int in, out;
	char byte;

	mkfifo(TO_SERVER, 0600);
	mkfifo(FROM_SERVER, 0600);
	in = open(TO_SERVER, O_RDWR);
	out = open(FROM_SERVER, O_RDWR);
	while (read(in, &byte, 1) == 1 && write(out, &byte, 1) == 1)
		;
	return 1;
}

static int ask(long requests)
{
	int out = open(TO_SERVER, O_RDWR), in = open(FROM_SERVER, O_RDWR);
	char byte = 0;

	while (requests--)
		if (write(out, &byte, 1) != 1 || read(in, &byte, 1) != 1)
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "children") && argc == 4)
		return children(atol(argv[2]), atol(argv[3]));
	if (!strcmp(what, "threads") && argc == 5)
		return threads(atol(argv[2]), atol(argv[3]), atol(argv[4]));
	if (!strcmp(what, "serve"))
		return serve();
	if (!strcmp(what, "ask") && argc == 3)
		return ask(atol(argv[2]));
	for (;;)
		make_calls(1);
}
