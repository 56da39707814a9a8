/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A ring of io_uring whose requests a program of BPF queues, inside the kernel: the kernel's loop
 * calls it (io_uring/bpf-ops, since 7.1). It owns the program, which queues as many NOPs as it is
 * told and then ends the loop, and how the program gets into the kernel.
 */
#ifndef EVAL_BPF_LOOP_H
#define EVAL_BPF_LOOP_H

#include <liburing.h>
#include <stddef.h>

struct bpf_loop {
	int ring, link;			/* the program's to the ring */
	struct io_uring_params params;
	char *queues;
	size_t queues_bytes;
	struct io_uring_sqe *requests;
};

/* Returns 0 or -errno: -ENOENT where the kernel has no such programs. */
int bpf_loop_open(struct bpf_loop *loop, unsigned int entries);
void bpf_loop_close(struct bpf_loop *loop);

/*
 * One crossing in which the program queues n NOPs, at most entries - 1. Returns how many of them
 * have a completion that says 0, or -errno.
 */
int bpf_loop_run(struct bpf_loop *loop, unsigned int n);

#endif /* EVAL_BPF_LOOP_H */
