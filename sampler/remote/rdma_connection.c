// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Opens the connection to a machine on which trapless_rdma.ko is loaded, and notices its end. It
 * owns the steps of trapless_rdma.h on the observer's side. What the target says is checked before
 * it is used.
 */
#include "rdma_connection.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "clock.h"

#define IN_FLIGHT 16		/* reads of those that are posted; the device may lower it */
#define STEP_MS 20000		/* for each step of opening but the last */
#define ADDRESS_MS 1000		/* for one try to resolve an address */
#define TABLE_MS 60000		/* for the target to register its memory */
#define SPINS 1024u		/* looks for an answer before one at the clock and at events */

/*
 * 4.096 us * 2^16 = 0.27 s without an acknowledgement, and as often again as RETRIES says: a target
 * that says nothing is gone after 2 s.
 */
#define ACK_TIMEOUT 16
#define RETRIES 6

#define BUFFER_BYTES (SLOTS * SLOT_BYTES + TLR_TABLE_BYTES + sizeof(struct tlr_answer))
#define SILENT "it does not answer"
#define NO_LISTENER 8		/* IB_CM_REJ_INVALID_SERVICE_ID; iWARP says ECONNREFUSED */
#define TABLE_ID (1ull << 32)	/* of the request that receives the table */

int rdma_lose(struct rdma *rdma, const char *reason)
{
	if (!*rdma->reason)
		snprintf(rdma->reason, sizeof(rdma->reason), "%s", reason);
	return -ENODEV;
}

static const char *refusal_text(const struct rdma_cm_event *event)
{
	static const char *const texts[] = {
		[TLR_PEER] = "the target does not allow this machine's address (allow=)",
		[TLR_NO_KEY] = "the target has no key yet: write it to "
			       "/sys/module/trapless_rdma/parameters/key there",
		[TLR_FULL] = "the target has as many observers as it may have",
		[TLR_LANGUAGE] = "the target's trapless_rdma.ko is of another version",
		[TLR_VIRTUAL_DMA] = "the target's device is Soft-RoCE or the like, by which reads "
				    "take its processor and can panic it",
		[TLR_HOTPLUG] = "the target's memory is being changed: try again",
		[TLR_RESOURCES] = "the target lacks the resources for a connection",
	};
	const struct tlr_refusal *refusal = event->param.conn.private_data;

	if (!refusal || event->param.conn.private_data_len < sizeof(*refusal) ||
	    refusal->magic != TLR_MAGIC || !refusal->reason ||
	    refusal->reason >= sizeof(texts) / sizeof(texts[0]))
		return event->status == NO_LISTENER || event->status == -ECONNREFUSED ?
		       "no trapless_rdma.ko is there" :
		       "it refuses the connection and does not say why: see its kernel's log";
	return texts[refusal->reason];
}

/* Waits for the next event: 0 if it is the wanted one. Its private data goes into `hello`. */
static int expect(struct rdma *rdma, enum rdma_cm_event_type wanted, struct tlr_hello *hello)
{
	struct pollfd ready = { .fd = rdma->channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	int status = 0;

	if (poll(&ready, 1, STEP_MS) <= 0 || rdma->call->rdma_get_cm_event(rdma->channel, &event))
		return rdma_lose(rdma, SILENT);
	if (event->event == RDMA_CM_EVENT_REJECTED)
		status = rdma_lose(rdma, refusal_text(event));
	else if (event->event != wanted)
		status = rdma_lose(rdma, event->event == RDMA_CM_EVENT_UNREACHABLE ||
					    event->status == -ETIMEDOUT ?
					    SILENT :
					    rdma->call->rdma_event_str(event->event));
	else if (hello && (!event->param.conn.private_data ||
			   event->param.conn.private_data_len < sizeof(*hello)))
		status = rdma_lose(rdma, "it accepts without a greeting");
	else if (hello)
		memcpy(hello, event->param.conn.private_data, sizeof(*hello));
	rdma->call->rdma_ack_cm_event(event);
	return status;
}

int rdma_check_events(struct rdma *rdma)
{
	struct pollfd ready = { .fd = rdma->channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	while (!*rdma->reason && poll(&ready, 1, 0) > 0 &&
	       !rdma->call->rdma_get_cm_event(rdma->channel, &event)) {
		if (event->event == RDMA_CM_EVENT_DISCONNECTED)
			rdma_lose(rdma, "it has closed the connection");
		else if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL)
			rdma_lose(rdma, "this machine's RDMA device is gone");
		rdma->call->rdma_ack_cm_event(event);
	}
	return *rdma->reason ? -ENODEV : 0;
}

int rdma_complete(struct rdma *rdma, struct ibv_wc *completion, uint64_t *began, uint64_t limit_ms)
{
	unsigned int spins = 0;

	for (;;) {
		int found = ibv_poll_cq(rdma->cq, 1, completion);

		if (found < 0)
			return rdma_lose(rdma, "this machine's RDMA device fails");
		if (found)
			break;
		if (++spins % SPINS)
			continue;
		if (rdma_check_events(rdma))
			return -ENODEV;
		if (!*began)
			*began = clock_read(CLOCK_MONOTONIC);
		if (clock_read(CLOCK_MONOTONIC) - *began > limit_ms * 1000000)
			return rdma_lose(rdma, SILENT);
		sched_yield();
	}
	if (completion->status == IBV_WC_SUCCESS)
		return 0;
	rdma_check_events(rdma);	/* which know better */
	return rdma_lose(rdma, completion->status == IBV_WC_RETRY_EXC_ERR ?
				  SILENT " any more" :
				  rdma->call->ibv_wc_status_str(completion->status));
}

/*
 * Resolves the address. The kernel asks by ARP or NDP, then waits for the reply: rdma_resolve_ip().
 * A reply that comes before it waits does not wake it, and it looks again only when its time is
 * over. So its time is short, and it is asked again.
 */
static int resolve_address(struct rdma *rdma, struct sockaddr *address)
{
	uint64_t end = clock_read(CLOCK_MONOTONIC) + STEP_MS * 1000000ull;
	int status;

	do {
		*rdma->reason = 0;
		if (rdma->call->rdma_resolve_addr(rdma->id, NULL, address, ADDRESS_MS))
			return rdma_lose(rdma, "this machine has no RDMA device on the way to it");
		status = expect(rdma, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	} while (status && !strcmp(rdma->reason, SILENT) && clock_read(CLOCK_MONOTONIC) < end);
	return status;
}

static int resolve(struct rdma *rdma, const char *host, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found;
	int status;

	if (getaddrinfo(host, port, &hints, &found))
		return rdma_lose(rdma, "its name leads to no address");
	rdma->channel = rdma->call->rdma_create_event_channel();
	if (!rdma->channel)
		status = rdma_lose(rdma, "here is no RDMA device, or rdma_ucm is not loaded");
	else if (rdma->call->rdma_create_id(rdma->channel, &rdma->id, NULL, RDMA_PS_TCP))
		status = rdma_lose(rdma, strerror(errno));
	else
		status = resolve_address(rdma, found->ai_addr);
	freeaddrinfo(found);
	if (!status && rdma->call->rdma_resolve_route(rdma->id, STEP_MS))
		status = rdma_lose(rdma, strerror(errno));
	return status ? status : expect(rdma, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
}

static int make_queues(struct rdma *rdma)
{
	struct ibv_qp_init_attr attributes = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = SLOTS, .max_recv_wr = 1, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct ibv_recv_wr request = { .wr_id = TABLE_ID, .num_sge = 1 }, *bad;
	struct ibv_sge piece;

	rdma->cq = rdma->call->ibv_create_cq(rdma->id->verbs, SLOTS + 1, NULL, NULL, 0);
	if (!rdma->cq)
		return rdma_lose(rdma, "no completion queue");
	attributes.send_cq = attributes.recv_cq = rdma->cq;
	rdma->buffer = aligned_alloc(4096, (BUFFER_BYTES + 4095) / 4096 * 4096);
	if (!rdma->buffer || rdma->call->rdma_create_qp(rdma->id, NULL, &attributes))
		return rdma_lose(rdma, "no queue pair");
	rdma->mr = rdma->call->ibv_reg_mr(rdma->id->pd, rdma->buffer, BUFFER_BYTES,
					  IBV_ACCESS_LOCAL_WRITE);
	if (!rdma->mr)
		return rdma_lose(rdma, "no memory can be registered: raise `ulimit -l`");
	piece = (struct ibv_sge){ (uintptr_t)rdma->buffer + SLOTS * SLOT_BYTES, TLR_TABLE_BYTES,
				  rdma->mr->lkey };
	request.sg_list = &piece;
	if (ibv_post_recv(rdma->id->qp, &request, &bad))
		return rdma_lose(rdma, "nothing can be received");
	return 0;
}

static int greet(struct rdma *rdma, struct tlr_transcript *transcript)
{
	struct tlr_hello hello = { .magic = TLR_MAGIC, .version = TLR_VERSION };
	struct rdma_conn_param parameters = {
		.private_data = &hello, .private_data_len = sizeof(hello),
		.initiator_depth = IN_FLIGHT, .retry_count = RETRIES, .rnr_retry_count = 7,
	};
	uint8_t ack_timeout = ACK_TIMEOUT;

	if (getrandom(hello.nonce, sizeof(hello.nonce), 0) != sizeof(hello.nonce))
		return rdma_lose(rdma, "no random numbers");
	memcpy(transcript->observer_nonce, hello.nonce, sizeof(hello.nonce));
	rdma->call->rdma_set_option(rdma->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
				    &ack_timeout, sizeof(ack_timeout));
	if (rdma->call->rdma_connect(rdma->id, &parameters))
		return rdma_lose(rdma, strerror(errno));
	if (expect(rdma, RDMA_CM_EVENT_ESTABLISHED, &hello))
		return -ENODEV;
	if (hello.magic != TLR_MAGIC || hello.version != TLR_VERSION)
		return rdma_lose(rdma, "its trapless_rdma.ko is of another version");
	memcpy(transcript->target_nonce, hello.nonce, sizeof(hello.nonce));
	key_address(&rdma->id->route.addr.src_addr, transcript->observer_address);
	key_address(&rdma->id->route.addr.dst_addr, transcript->target_address);
	return 0;
}

static int send_answer(struct rdma *rdma, const struct key *key,
		       const struct tlr_transcript *transcript)
{
	struct tlr_answer *answer = (void *)(rdma->buffer + SLOTS * SLOT_BYTES + TLR_TABLE_BYTES);
	struct ibv_sge piece = { (uintptr_t)answer, sizeof(*answer), rdma->mr->lkey };
	struct ibv_send_wr request = { .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND };
	struct ibv_send_wr *bad;

	key_code(key, TLR_LABEL_OBSERVER, transcript, NULL, 0, answer->code);
	if (ibv_post_send(rdma->id->qp, &request, &bad))
		return rdma_lose(rdma, "nothing can be sent");
	return 0;
}

/* The table, which has arrived in the buffer, as a copy that is checked. */
static int take_table(struct rdma *rdma, const struct key *key,
		      const struct tlr_transcript *transcript, uint32_t bytes)
{
	struct tlr_table *table = malloc(TLR_TABLE_BYTES);
	uint8_t code[TLR_CODE_BYTES], own[TLR_CODE_BYTES];
	uint64_t end = 0;
	uint32_t i;

	rdma->table = table;
	if (!table)
		return rdma_lose(rdma, "out of memory");
	memcpy(table, rdma->buffer + SLOTS * SLOT_BYTES, TLR_TABLE_BYTES);
	memcpy(code, table->code, sizeof(code));
	memset(table->code, 0, sizeof(code));
	if (bytes < sizeof(*table) || table->magic != TLR_MAGIC || table->version != TLR_VERSION ||
	    !table->regions || table->regions > TLR_REGIONS_MAX ||
	    bytes != sizeof(*table) + table->regions * sizeof(table->region[0]))
		return rdma_lose(rdma, "its table of memory is damaged");
	key_code(key, TLR_LABEL_TARGET, transcript, table, bytes, own);
	if (memcmp(code, own, sizeof(own)))
		return rdma_lose(rdma, "it does not have the key");
	for (i = 0; i < table->regions; i++) {
		const struct tlr_region *region = &table->region[i];

		if (region->start < end || region->length > UINT64_MAX - region->start)
			return rdma_lose(rdma, "its table of memory is damaged");
		end = region->start + region->length;
	}
	return 0;
}

int rdma_connect_target(struct rdma *rdma, const char *host, const char *port,
			const struct key *key)
{
	struct tlr_transcript transcript = { 0 };
	struct ibv_wc completion = { 0 };
	bool sent = false;
	uint64_t began = 0;
	uint32_t bytes = 0;
	int status = resolve(rdma, host, port);

	status = status ? status : make_queues(rdma);
	status = status ? status : greet(rdma, &transcript);
	status = status ? status : send_answer(rdma, key, &transcript);
	while (!status && !(sent && bytes)) {
		status = rdma_complete(rdma, &completion, &began, TABLE_MS);
		if (status && strncmp(rdma->reason, SILENT, strlen(SILENT)))
			snprintf(rdma->reason, sizeof(rdma->reason), "it has closed the connection "
				 "after the answer: is the key the same on both sides?");
		if (completion.wr_id == TABLE_ID)
			bytes = completion.byte_len;
		else
			sent = true;
	}
	return status ? status : take_table(rdma, key, &transcript, bytes);
}

void rdma_disconnect_target(struct rdma *rdma)
{
	if (rdma->id && rdma->id->qp) {
		rdma->call->rdma_disconnect(rdma->id);
		rdma->call->rdma_destroy_qp(rdma->id);
	}
	if (rdma->mr)
		rdma->call->ibv_dereg_mr(rdma->mr);
	if (rdma->cq)
		rdma->call->ibv_destroy_cq(rdma->cq);
	if (rdma->id)
		rdma->call->rdma_destroy_id(rdma->id);
	if (rdma->channel)
		rdma->call->rdma_destroy_event_channel(rdma->channel);
	free(rdma->table);
	free(rdma->buffer);
}
