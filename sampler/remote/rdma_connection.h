/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declares the connection to a machine on which trapless_rdma.ko is loaded: rdma_connection.c opens
 * it, and rdma.c reads by it.
 */
#ifndef SAMPLER_RDMA_CONNECTION_H
#define SAMPLER_RDMA_CONNECTION_H

#include "rdma_key.h"
#include "rdma_library.h"

#define SLOTS 64u		/* reads that are posted */
#define SLOT_BYTES 16384u	/* of one of them; longer ones are several */

struct slot {
	void *into;
	uint32_t length;
};

struct rdma {
	const struct library *call;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *buffer;		/* the slots, the table, and the answer */
	struct tlr_table *table;	/* a copy, which the device cannot write */
	struct slot slot[SLOTS];
	uint64_t posted, finished;	/* reads; they finish in their order */
	char reason[256];		/* why it is gone; empty: it is not */
};

/* Fills in all but the slots: 0 or -ENODEV. The caller closes it in either case. */
int rdma_connect_target(struct rdma *rdma, const char *host, const char *port,
			const struct key *key);
void rdma_disconnect_target(struct rdma *rdma);
/*
 * Waits for the completion of a request: 0 or -ENODEV. The limit is for all waits that have *began
 * in common, which is 0 at first.
 */
int rdma_complete(struct rdma *rdma, struct ibv_wc *completion, uint64_t *began, uint64_t limit_ms);
/* Takes the events that have arrived: -ENODEV where one says that the connection has ended. */
int rdma_check_events(struct rdma *rdma);
/* Notes why the target is gone, if nothing has been noted: -ENODEV. */
int rdma_lose(struct rdma *rdma, const char *reason);

#endif
