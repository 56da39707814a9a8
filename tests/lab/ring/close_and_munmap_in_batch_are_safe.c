// SPDX-License-Identifier: GPL-2.0-only
/*
 * The attack: a batch of [close(its own descriptor), munmap(its own ring), a call that runs the
 * deferred release], which freed the ring under the batch that runs from it. Single-threaded,
 * where the kernel takes no reference of its own to the descriptor.
 */
#include <sys/ioctl.h>

#include "ring.h"

static void attack(void)
{
	struct ring ring = ring_open(8);
	unsigned char parameters[120] = { 0 };	/* struct io_uring_params */
	long uring = sys(SYS_io_uring_setup, 4, parameters), done;
	pid_t waker;

	on_signal(SIGALRM, count_signal, 0);
	ring_put(&ring, 0, SYS_close, ring.fd);
	ring_put(&ring, 1, SYS_munmap, ring.requests, TL_RING_BYTES(8));
	/* Waits for a completion that does not come, running task work meanwhile. */
	ring_put(&ring, 2, SYS_io_uring_enter, uring, 0, 1, 1);
	for (unsigned int slot = 3; slot < 8; slot++)
		ring_put(&ring, slot, SYS_getpid);
	waker = signal_when_asleep(SIGALRM);
	done = ring_batch(&ring, 0, 8);
	CHECK_EXITED(child_wait(waker), 0);
	CHECK_WITHIN(done, 2, 8);
	CHECK_EQ(sys(SYS_fcntl, ring.fd, F_GETFD), -EBADF);
	CHECK_EQ(sys(SYS_msync, ring.requests, TL_RING_BYTES(8), MS_ASYNC), -ENOMEM);
}

int main(void)
{
	for (int i = 0; i < 5; i++) {
		CHECK_EXITED(child_run(attack), 0);
		/* New rings would land in what was freed too early. */
		for (int again = 0; again < 20; again++) {
			struct ring ring = ring_open(8);

			CHECK_EQ(batch_call(&ring, SYS_getpid), getpid());
			ring_close(&ring);
		}
	}
	return 0;
}
