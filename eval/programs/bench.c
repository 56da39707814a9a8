// SPDX-License-Identifier: GPL-2.0-only
/*
 * See bench.h. It owns opening and closing the mechanisms, and nothing of what they are used for.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "measure.h"

static const char *const names[MECHANISMS] = {
	[PLAIN] = "plain", [BATCH] = "batch", [PROGRAM] = "program", [C_BLAKE] = "c-blake",
	[URING] = "io_uring", [URING_STATX] = "io_uring-statx",
	[URING_BPF] = "io_uring-bpf", [PSC] = "psc",
};

const char *mechanism_name(enum mechanism mechanism)
{
	return names[mechanism];
}

/* The flags with which io_uring runs its task work at no other place than its own call. */
static int open_uring(struct io_uring *ring)
{
	struct io_uring_params params = {
		.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
	};
	int error = io_uring_queue_init_params(RING_ENTRIES, ring, &params);

	if (error)
		return error;
	error = io_uring_register_files_sparse(ring, FILES_MAX);
	if (error)
		io_uring_queue_exit(ring);
	return error;
}

static int open_one(struct bench *bench, enum mechanism mechanism)
{
	switch (mechanism) {
	case BATCH:
		return tl_batch_create(&bench->batch, RING_ENTRIES, TL_MODULE);
	case PROGRAM:	/* programs run in the ring of batches */
		return bench->batch ? 0 : -ENODEV;
	case C_BLAKE:
		bench->array_fd = open("/dev/" ARRAY_DEVICE, O_RDWR | O_CLOEXEC);
		return bench->array_fd < 0 ? -errno : 0;
	case URING:
		return open_uring(&bench->uring);
	case URING_STATX:
		return bench->open[URING] ? 0 : -ENODEV;
	case URING_BPF:
		return bpf_loop_open(&bench->bpf_loop, RING_ENTRIES);
	default:	/* nothing to open; workers are started by burst.c */
		return 0;
	}
}

void bench_open(struct bench *bench, const char *wanted)
{
	for (unsigned int m = 0; m < MECHANISMS; m++) {
		int error = measure_list_has(wanted, names[m]) ?
				    open_one(bench, (enum mechanism)m) : MEASURE_NOT_ASKED;

		bench->open[m] = measure_opened(bench->reason[m], error);
	}
}

void bench_close(struct bench *bench)
{
	if (bench->open[URING_BPF])
		bpf_loop_close(&bench->bpf_loop);
	if (bench->open[URING])
		io_uring_queue_exit(&bench->uring);
	if (bench->open[C_BLAKE])
		close(bench->array_fd);
	tl_batch_destroy(bench->batch);
	tl_psc_destroy(bench->psc);
}

bool bench_stats(struct bench *bench, enum mechanism mechanism, struct tl_stats *stats)
{
	int error;

	*stats = (struct tl_stats){ .size = sizeof(*stats) };
	switch (mechanism) {
	case BATCH:
	case PROGRAM:
		error = tl_batch_get_stats(bench->batch, stats);
		break;
	case PSC:
		error = tl_psc_get_stats(bench->psc, stats);
		break;
	default:
		return false;
	}
	if (error)
		measure_fail("statistics of %s: %s", names[mechanism], strerror(-error));
	return true;
}
