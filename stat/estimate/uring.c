// SPDX-License-Identifier: GPL-2.0-only
/* io_uring as subjects of the estimate: see uring.h. */
#include "uring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <liburing.h>

static struct io_uring ring;
static int file_fd;
static char bytes[SUBJECT_BATCH_MAX];

int uring_open(int file)
{
	static int opened = 1;

	if (opened <= 0)
		return opened;
	file_fd = file;
	opened = io_uring_queue_init(SUBJECT_BATCH_MAX, &ring, 0);
	if (opened)
		printf("{\"absent\": \"uring\", \"why\": \"%s\"}\n", strerror(-opened));
	return opened;
}

void uring_run(const struct subject *subject, unsigned int calls)
{
	unsigned int n = subject->n, head, seen;
	bool reads = subject->what == URING_READ;
	struct io_uring_cqe *cqe;
	int wrong = 0;

	for (unsigned int i = 0; i < calls; i += n) {
		for (unsigned int j = 0; j < n; j++) {
			struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

			if (reads)
				io_uring_prep_read(sqe, file_fd, &bytes[j], 1, j);
			else
				io_uring_prep_nop(sqe);
		}
		wrong |= io_uring_submit_and_wait(&ring, n) ^ (int)n;
		seen = 0;
		io_uring_for_each_cqe(&ring, head, cqe) {
			wrong |= cqe->res ^ (int)reads;
			seen++;
		}
		io_uring_cq_advance(&ring, seen);
		wrong |= (int)(seen ^ n);
	}
	if (wrong) {
		fprintf(stderr, "trapless-estimate: %s: wrong results\n", subject->name);
		exit(1);
	}
}
