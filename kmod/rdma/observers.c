// SPDX-License-Identifier: GPL-2.0-only
/*
 * Serves observers: accepts a request, checks the answer, exposes memory, and watches that the
 * observer is still there. It owns the life of a connection and the number of them. Once memory is
 * exposed, reads do not reach this machine's processor; every few seconds an empty RDMA WRITE shows
 * whether the observer still acknowledges.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/mutex.h>
#include <linux/printk.h>
#include <linux/slab.h>
#include <rdma/ib_cm.h>

#include "compat/moved_headers.h"
#include "exposure.h"
#include "handshake.h"
#include "observers.h"
#include "peers.h"

/* 4.096 us * 2^17 = 0.5 s: the longest wait for an acknowledgement before it is asked for again. */
#define ACK_TIMEOUT 17

static DEFINE_MUTEX(lock);	/* of the list, of the number in it, and of `closed` */
static LIST_HEAD(connections);
static unsigned int count;
static bool closed;
static DECLARE_WAIT_QUEUE_HEAD(ended);
static struct workqueue_struct *queue;

static int send_table(struct tlr_connection *connection)
{
	struct tlr_table *table = &connection->messages->table;
	struct ib_sge piece = {
		.addr = connection->table_dma,
		.length = struct_size(table, region, table->regions),
		.lkey = connection->pd->local_dma_lkey,
	};
	struct ib_send_wr request = { .opcode = IB_WR_SEND, .sg_list = &piece, .num_sge = 1 };

	ib_dma_sync_single_for_device(connection->id->device, piece.addr, piece.length,
				      DMA_TO_DEVICE);
	return tlr_connection_send(connection, &request, TLR_ANSWER_MS);
}

static int beat(struct tlr_connection *connection)
{
	struct ib_rdma_wr request = { .wr.opcode = IB_WR_RDMA_WRITE };

	return tlr_connection_send(connection, &request.wr, TLR_BEAT_LIMIT_MS);
}

static int check_answer(struct tlr_connection *connection)
{
	int error = tlr_connection_await(connection, &connection->receiving, TLR_ANSWER_MS);

	if (error)
		return error;
	if (connection->received_bytes != sizeof(struct tlr_answer))
		return -EPROTO;
	ib_dma_sync_single_for_cpu(connection->id->device, connection->answer_dma,
				   sizeof(struct tlr_answer), DMA_FROM_DEVICE);
	return tlr_handshake_check(connection);
}

/* What an observer may do is decided here: nothing before its answer, then reads. */
static int open_memory(struct tlr_connection *connection)
{
	struct tlr_table *table = &connection->messages->table;
	/* The connection manager has allowed writes as well. */
	struct ib_qp_attr reads = { .qp_access_flags = IB_ACCESS_REMOTE_READ };
	int error;

	wait_event_idle_timeout(connection->wait,
				READ_ONCE(connection->established) || READ_ONCE(connection->gone),
				msecs_to_jiffies(TLR_ANSWER_MS));
	if (!READ_ONCE(connection->established))
		return -ETIMEDOUT;
	error = ib_modify_qp(connection->id->qp, &reads, IB_QP_ACCESS_FLAGS);
	error = error ?: check_answer(connection);
	if (error)
		return error;
	table->magic = TLR_MAGIC;
	table->version = TLR_VERSION;
	table->vmcoreinfo = paddr_vmcoreinfo_note();
	error = tlr_exposure_add(connection);
	error = error ?: tlr_handshake_sign(connection);
	return error ?: send_table(connection);
}

static void release(struct tlr_connection *connection)
{
	tlr_connection_stop(connection);
	tlr_exposure_remove(connection);
	tlr_connection_release(connection);
}

/* Frees a connection of which nothing is left but its place in the list. */
static void forget(struct tlr_connection *connection)
{
	mutex_lock(&lock);
	list_del(&connection->list);
	count--;
	mutex_unlock(&lock);
	kfree(connection);
	wake_up_all(&ended);
}

static void serve(struct work_struct *work)
{
	struct tlr_connection *connection = container_of(work, struct tlr_connection, work);
	const struct sockaddr_storage *peer = &connection->id->route.addr.dst_addr;
	int error = open_memory(connection);

	if (!error)
		pr_info("%pISc reads by %s, in %u regions\n", peer, connection->id->device->name,
			connection->messages->table.regions);
	while (!error && !wait_event_idle_timeout(connection->wait, READ_ONCE(connection->gone),
						  msecs_to_jiffies(TLR_BEAT_MS)))
		error = beat(connection);
	if (error == -EACCES)
		pr_warn_ratelimited("%pISc does not have the key\n", peer);
	else
		pr_info_ratelimited("%pISc is gone: %d\n", peer, error);
	rdma_disconnect(connection->id);
	release(connection);
	rdma_destroy_id(connection->id);
	forget(connection);
}

/* A place in the list; NULL where there is none, and then *reason says why. */
static struct tlr_connection *reserve(struct rdma_cm_id *id, enum tlr_reason *reason)
{
	struct tlr_connection *connection = kzalloc(sizeof(*connection), GFP_KERNEL);

	if (connection) {	/* whole before it is listed: tlr_observers_end() wakes it */
		connection->id = id;
		INIT_WORK(&connection->work, serve);
		init_waitqueue_head(&connection->wait);
	}
	mutex_lock(&lock);
	*reason = !connection ? TLR_RESOURCES : closed ? TLR_HOTPLUG :
		  count == TLR_CONNECTIONS_MAX ? TLR_FULL : 0;
	if (!*reason) {
		list_add(&connection->list, &connections);
		count++;
	}
	mutex_unlock(&lock);
	if (*reason) {
		kfree(connection);
		return NULL;
	}
	return connection;
}

static int accept(struct tlr_connection *connection, const struct rdma_conn_param *asked)
{
	struct rdma_cm_id *id = connection->id;
	struct tlr_hello hello = { .magic = TLR_MAGIC, .version = TLR_VERSION };
	struct rdma_conn_param answer = {
		.private_data = &hello, .private_data_len = sizeof(hello), .rnr_retry_count = 7,
		/* The reads that the observer may have under way: its depth comes by this name. */
		.responder_resources = min_t(int, asked->responder_resources,
					     id->device->attrs.max_qp_rd_atom),
	};
	int error = tlr_connection_create(connection);

	if (error)
		return error;
	tlr_handshake_begin(connection, asked->private_data);
	memcpy(hello.nonce, connection->messages->transcript.target_nonce, sizeof(hello.nonce));
	rdma_set_ack_timeout(id, ACK_TIMEOUT);	/* where the device has a choice */
	id->context = connection;
	error = rdma_accept(id, &answer);
	if (error)
		id->context = NULL;
	return error;
}

static int refuse(struct rdma_cm_id *id, enum tlr_reason reason)
{
	struct tlr_refusal refusal = { .magic = TLR_MAGIC, .reason = reason };

	pr_warn_ratelimited("%pISc is refused: reason %d\n", &id->route.addr.dst_addr, reason);
	rdma_reject(id, &refusal, sizeof(refusal), IB_CM_REJ_CONSUMER_DEFINED);
	return -ECONNREFUSED;
}

int tlr_observers_accept(struct rdma_cm_id *id, const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *asked = &event->param.conn;
	const struct tlr_hello *hello = asked->private_data;
	struct tlr_connection *connection;
	enum tlr_reason reason = tlr_peers_check(id);

	if (!reason && (!hello || asked->private_data_len < sizeof(*hello) ||
			hello->magic != TLR_MAGIC || hello->version != TLR_VERSION))
		reason = TLR_LANGUAGE;
	if (!reason && !tlr_handshake_has_key())
		reason = TLR_NO_KEY;
	if (reason)
		return refuse(id, reason);
	connection = reserve(id, &reason);
	if (!connection)
		return refuse(id, reason);
	if (accept(connection, asked)) {
		release(connection);
		forget(connection);
		return refuse(id, TLR_RESOURCES);
	}
	queue_work(queue, &connection->work);
	return 0;
}

void tlr_observers_event(struct tlr_connection *connection, enum rdma_cm_event_type event)
{
	if (event == RDMA_CM_EVENT_ESTABLISHED)
		WRITE_ONCE(connection->established, true);
	else
		WRITE_ONCE(connection->gone, true);
	wake_up(&connection->wait);
}

void tlr_observers_end(bool close)
{
	struct tlr_connection *connection;

	mutex_lock(&lock);
	closed |= close;
	list_for_each_entry(connection, &connections, list) {
		WRITE_ONCE(connection->gone, true);
		wake_up(&connection->wait);
	}
	mutex_unlock(&lock);
	if (close)
		wait_event(ended, !READ_ONCE(count));
}

void tlr_observers_reopen(void)
{
	mutex_lock(&lock);
	closed = false;
	mutex_unlock(&lock);
}

int tlr_observers_init(void)
{
	queue = alloc_workqueue(KBUILD_MODNAME, WQ_UNBOUND, 0);
	return queue ? 0 : -ENOMEM;
}

void tlr_observers_exit(void)
{
	destroy_workqueue(queue);
}
