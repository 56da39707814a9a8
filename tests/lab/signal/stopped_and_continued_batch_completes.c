// SPDX-License-Identifier: GPL-2.0-only
/*
 * SIGSTOP and SIGCONT in the middle of a batch, without any handler: every call is made once, and
 * the module says that the batch may go on at once.
 */
#include "ring.h"

static int in[2], out[2];

static void body(void)
{
	struct ring ring = ring_open(4);
	struct tl_program *program = (void *)&ring.requests[4];
	unsigned int done = 0;
	char byte;

	ring_put(&ring, 0, SYS_write, out[1], "a", 1);
	ring_put(&ring, 1, SYS_read, in[0], &byte, 1);
	ring_put(&ring, 2, SYS_write, out[1], "b", 1);
	while (done < 3) {
		long result = ring_batch(&ring, done, 3 - done);

		CHECK_WITHIN(result, 1, 3);	/* the kernel restarts it: never -EINTR */
		done += (unsigned int)result;
		CHECK_EQ(program->stopped, done < 3 ? TL_STOPPED_PAUSE : TL_STOPPED_NEVER);
		program->stopped = TL_STOPPED_NEVER;
	}
	CHECK_DONE(&ring, 1, 1);
}

int main(void)
{
	char bytes[4];
	int status;
	pid_t pid;

	MUST(pipe(in));
	MUST(pipe2(out, O_NONBLOCK));
	pid = child_start(body);
	for (int i = 0; i < 3; i++) {
		wait_asleep(pid);
		MUST(kill(pid, SIGSTOP));
		CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
		CHECK(WIFSTOPPED(status));
		MUST(kill(pid, SIGCONT));
	}
	wait_asleep(pid);
	CHECK_EQ(write(in[1], "x", 1), 1);
	CHECK_EXITED(child_wait(pid), 0);
	CHECK_EQ(read(out[0], bytes, sizeof(bytes)), 2);
	CHECK(!memcmp(bytes, "ab", 2));
	return 0;
}
