/* SPDX-License-Identifier: GPL-2.0-only */
/* Declares a connection to an observer: its state, its queues, and the bounds of all of them. */
#ifndef TLR_CONNECTION_H
#define TLR_CONNECTION_H

#include <linux/list.h>
#include <linux/trapless_rdma.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

/* Connections at a time: four observers, each of which reads by one and samples by another. */
#define TLR_CONNECTIONS_MAX 8u

/* The longest wait for the connection and for an answer, ms. */
#define TLR_ANSWER_MS 5000u

/* How often a connection is checked, and how long that may take, ms. */
#define TLR_BEAT_MS 5000u
#define TLR_BEAT_LIMIT_MS 30000u

/* Requests that are posted before their completions are awaited. */
#define TLR_REQUESTS_MAX 32u

struct tlr_exposed;

/* What crosses the wire. The target's code is of the transcript and of the table behind it. */
struct tlr_messages {
	struct tlr_answer answer;
	struct tlr_transcript transcript;
	union {
		struct tlr_table table;
		u8 table_bytes[TLR_TABLE_BYTES];
	};
};

/*
 * The worker (observers.c) owns all of it, and frees it after rdma_destroy_id(), which waits for
 * the handler of events. That handler writes `established` and `gone` alone, and wakes the worker.
 */
struct tlr_connection {
	struct list_head list;		/* under the lock of observers.c */
	struct work_struct work;
	wait_queue_head_t wait;
	bool established, gone;
	struct rdma_cm_id *id;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_cqe sent, received;
	unsigned int sending, receiving;	/* completions that are awaited */
	u32 received_bytes;
	int error;			/* of a completion */
	struct tlr_messages *messages;
	u64 answer_dma, table_dma;	/* 0: not mapped */
	struct tlr_exposed *exposed;	/* TLR_REGIONS_MAX of them */
	unsigned int exposures;
};

/* Makes the queues of a connection whose id is known, and posts the receipt of the answer. */
int tlr_connection_create(struct tlr_connection *connection);
/* Ends its queue pair and all that is under way. */
void tlr_connection_stop(struct tlr_connection *connection);
/* Gives back the rest of what was created, maybe in part. */
void tlr_connection_release(struct tlr_connection *connection);
/* Posts a request and waits for its end: 0 or an error. */
int tlr_connection_send(struct tlr_connection *connection, struct ib_send_wr *request,
			unsigned int limit_ms);
/* Waits for the completions that `awaited` counts: 0 or an error. */
int tlr_connection_await(struct tlr_connection *connection, const unsigned int *awaited,
			 unsigned int limit_ms);

#endif
