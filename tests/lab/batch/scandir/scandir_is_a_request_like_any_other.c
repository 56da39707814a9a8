// SPDX-License-Identifier: GPL-2.0-only
/*
 * TL_NR_SCANDIR stands where a call's number stands: a program opens a directory, passes the
 * descriptor on and repeats the request to the end, and a worker makes it. Bad arguments are an
 * errno, and a file that is no directory stays as it was.
 */
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "scan.h"

static char entries[20000] __attribute__((aligned(8)));

static void in_a_program(void)
{
	struct ring ring = ring_open(4);
	struct tl_program *program = (void *)&ring.requests[4];

	ring_put(&ring, 0, SYS_openat, AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY);
	ring_put(&ring, 1, TL_NR_SCANDIR | TL_RESULT(0) | TL_JUMPS, 0, entries, 1000, SCAN_ALL);
	ring.requests[1].condition = TL_IF_POSITIVE;
	ring.requests[1].target = 1;
	ring_put(&ring, 2, SYS_lseek | TL_RESULT(0), 0, 0, SEEK_CUR);
	ring_put(&ring, 3, SYS_close | TL_RESULT(0), 0);
	*program = (struct tl_program){ .steps = 1000 };
	CHECK_WITHIN(enter(&ring, 4, TL_ENTER_PROGRAM), 10, 1000);
	CHECK_EQ(program->stopped, TL_STOPPED_END);
	CHECK_DONE(&ring, 1, 0);
	CHECK_WITHIN(ring_result(&ring, 2), 1, INT64_MAX);
	CHECK_DONE(&ring, 3, 0);
	ring_close(&ring);
}

static void by_a_worker(void)
{
	struct ring ring = worker_ring_open(1);
	struct worker worker = { 0 };

	worker_start(&worker, &ring);
	ring_queue(&ring, 0, TL_NR_SCANDIR, open_directory("/dev"), entries, sizeof(entries),
		   SCAN_ALL, 0);
	CHECK_EQ(ring_wait(&ring, 1, 0), 0);
	CHECK_WITHIN(ring_result(&ring, 0), sizeof(struct tl_scan_entry) + 8, sizeof(entries));
	scan_each(entry, entries, ring_result(&ring, 0))
		scan_check_form(entry, sizeof(entries));
	workers_end(&ring, &worker, 1);
}

static void check_arguments(void)
{
	struct ring ring = ring_open(1);
	int root = open_directory("/"), ends[2], value;

	CHECK_EQ(scan(&ring, -1, entries, sizeof(entries), SCAN_ALL, 0), -EBADF);
	CHECK_EQ(scan(&ring, AT_FDCWD, entries, sizeof(entries), SCAN_ALL, 0), -EBADF);
	CHECK_EQ(scan(&ring, MUST(open("/", O_PATH)), entries, sizeof(entries), 0, 0), -EBADF);
	CHECK_EQ(scan(&ring, root, entries, sizeof(entries), STATX__RESERVED, 0), -EINVAL);
	CHECK_EQ(scan(&ring, root, entries, sizeof(entries), SCAN_ALL, 2), -EINVAL);
	CHECK_EQ(scan(&ring, root, entries, sizeof(entries), SCAN_ALL, 0x6000), -EINVAL);
	CHECK_EQ(scan(&ring, root, entries, sizeof(entries), SCAN_ALL, 0x80000000), -EINVAL);
	CHECK_EQ(scan(&ring, root, entries, 8, SCAN_ALL, 0), -EINVAL);

	CHECK_EQ(scan(&ring, MUST(open("/dev/null", O_RDONLY)), entries, 1000, 0, 0), -ENOTDIR);
	CHECK_EQ(scan(&ring, MUST(open("/proc/stat", O_RDONLY)), entries, 1000, 0, 0), -ENOTDIR);
	CHECK_EQ(scan(&ring, MUST(eventfd(0, 0)), entries, 1000, 0, 0), -ENOTDIR);
	CHECK_EQ(scan(&ring, MUST(socket(AF_UNIX, SOCK_STREAM, 0)), entries, 1000, 0, 0), -ENOTDIR);
	/*
	 * A pipe has something else where a directory has the lock of its position: how often
	 * it was opened to be written, if it is a FIFO that is opened without a writer.
	 */
	MUST(mkfifo("/fifo", 0600));
	value = MUST(open("/fifo", O_RDWR));
	MUST(close(value));
	CHECK_EQ(scan(&ring, MUST(open("/fifo", O_RDONLY | O_NONBLOCK)), entries, 1000, 0, 0),
		 -ENOTDIR);
	MUST(pipe(ends));
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(scan(&ring, ends[0], entries, 1000, 0, 0), -ENOTDIR);
		CHECK_EQ(write(ends[1], &i, sizeof(i)), sizeof(i));
		CHECK_EQ(read(ends[0], &value, sizeof(value)), sizeof(value));
		CHECK_EQ(value, i);
	}
	ring_close(&ring);
}

int main(void)
{
	struct ring ring = ring_open(1);

	if (batch_call(&ring, TL_NR_SCANDIR, -1) == -ENOSYS)
		SKIP("the module does not offer TL_NR_SCANDIR on this kernel");
	check_arguments();
	in_a_program();
	by_a_worker();
	return 0;
}
