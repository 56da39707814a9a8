// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes and releases what a connection consists of, and waits for its completions. It owns the
 * queues and the mapped messages; it decides nothing.
 */
#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/slab.h>

#include "connection.h"

static void finish(struct tlr_connection *connection, const struct ib_wc *wc)
{
	if (wc->status != IB_WC_SUCCESS)
		connection->error = -EIO;
}

static void on_sent(struct ib_cq *cq, struct ib_wc *wc)
{
	struct tlr_connection *connection = container_of(wc->wr_cqe, struct tlr_connection, sent);

	connection->sending--;
	finish(connection, wc);
}

static void on_received(struct ib_cq *cq, struct ib_wc *wc)
{
	struct tlr_connection *connection =
		container_of(wc->wr_cqe, struct tlr_connection, received);

	connection->receiving--;
	connection->received_bytes = wc->byte_len;
	finish(connection, wc);
}

int tlr_connection_await(struct tlr_connection *connection, const unsigned int *awaited,
			 unsigned int limit_ms)
{
	unsigned long end = jiffies + msecs_to_jiffies(limit_ms);

	while (*awaited && !connection->error && !READ_ONCE(connection->gone)) {
		if (ib_process_cq_direct(connection->cq, -1) > 0)
			continue;
		if (time_after(jiffies, end))
			return -ETIMEDOUT;
		wait_event_idle_timeout(connection->wait, READ_ONCE(connection->gone), 1);
	}
	return connection->error ?: *awaited ? -ECONNRESET : 0;
}

int tlr_connection_send(struct tlr_connection *connection, struct ib_send_wr *request,
			unsigned int limit_ms)
{
	int error;

	request->wr_cqe = &connection->sent;
	request->send_flags = IB_SEND_SIGNALED;
	error = ib_post_send(connection->id->qp, request, NULL);
	if (error)
		return error;
	connection->sending++;
	return tlr_connection_await(connection, &connection->sending, limit_ms);
}

static int map_messages(struct tlr_connection *connection)
{
	struct ib_device *device = connection->id->device;
	u64 dma;

	dma = ib_dma_map_single(device, &connection->messages->answer, sizeof(struct tlr_answer),
				DMA_FROM_DEVICE);
	if (ib_dma_mapping_error(device, dma))
		return -ENOMEM;
	connection->answer_dma = dma;
	dma = ib_dma_map_single(device, connection->messages->table_bytes, TLR_TABLE_BYTES,
				DMA_TO_DEVICE);
	if (ib_dma_mapping_error(device, dma))
		return -ENOMEM;
	connection->table_dma = dma;
	return 0;
}

static int post_receive(struct tlr_connection *connection)
{
	struct ib_sge piece = { .addr = connection->answer_dma,
				.length = sizeof(struct tlr_answer),
				.lkey = connection->pd->local_dma_lkey };
	struct ib_recv_wr request = { .wr_cqe = &connection->received, .sg_list = &piece,
				      .num_sge = 1 };

	connection->receiving = 1;
	return ib_post_recv(connection->id->qp, &request, NULL);
}

int tlr_connection_create(struct tlr_connection *connection)
{
	struct rdma_cm_id *id = connection->id;
	struct ib_qp_init_attr attributes = {
		.qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		/* One more of each, by which the queues are drained. */
		.cap = { .max_send_wr = TLR_REQUESTS_MAX + 1, .max_recv_wr = 2, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	int error;

	connection->sent.done = on_sent;
	connection->received.done = on_received;
	connection->messages = kzalloc(sizeof(*connection->messages), GFP_KERNEL);
	if (!connection->messages)
		return -ENOMEM;
	error = map_messages(connection);
	if (error)
		return error;
	connection->pd = ib_alloc_pd(id->device, 0);
	if (IS_ERR(connection->pd))
		return PTR_ERR(connection->pd);
	connection->cq = ib_alloc_cq(id->device, connection, TLR_REQUESTS_MAX + 4, 0,
				     IB_POLL_DIRECT);
	if (IS_ERR(connection->cq))
		return PTR_ERR(connection->cq);
	attributes.send_cq = attributes.recv_cq = connection->cq;
	error = rdma_create_qp(id, connection->pd, &attributes);
	return error ?: post_receive(connection);
}

void tlr_connection_stop(struct tlr_connection *connection)
{
	if (connection->id->qp) {
		ib_drain_qp(connection->id->qp);
		rdma_destroy_qp(connection->id);
	}
}

void tlr_connection_release(struct tlr_connection *connection)
{
	struct ib_device *device = connection->id->device;

	if (connection->table_dma)
		ib_dma_unmap_single(device, connection->table_dma, TLR_TABLE_BYTES, DMA_TO_DEVICE);
	if (connection->answer_dma)
		ib_dma_unmap_single(device, connection->answer_dma, sizeof(struct tlr_answer),
				    DMA_FROM_DEVICE);
	if (!IS_ERR_OR_NULL(connection->cq))
		ib_free_cq(connection->cq);
	if (!IS_ERR_OR_NULL(connection->pd))
		ib_dealloc_pd(connection->pd);
	kfree(connection->messages);
}
