// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads the memory of a machine on which trapless_rdma.ko is loaded, by RDMA READ. It owns the
 * reads that are in flight. rdma_connection.c opens the connection, rdma_library.c loads the
 * libraries, and rdma_key.c proves that both sides have the key.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rdma_connection.h"
#include "source.h"

#define READ_MS 30000		/* after which reads without an answer are given up */

static const struct tlr_region *region_of(const struct tlr_table *table, uint64_t physical)
{
	uint32_t low = 0, high = table->regions;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (table->region[middle].start <= physical)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low || physical - table->region[low - 1].start >= table->region[low - 1].length)
		return NULL;
	return &table->region[low - 1];
}

/* How much of a place one read takes; 0: none of it is memory. */
static uint32_t piece_of(const struct tlr_region *region, uint64_t physical, uint64_t length)
{
	uint64_t inside = region ? region->start + region->length - physical : 0;

	inside = inside < length ? inside : length;
	return (uint32_t)(inside < SLOT_BYTES ? inside : SLOT_BYTES);
}

/* Whether all of a place is memory. A read outside of it would end the connection. */
static bool is_memory(const struct tlr_table *table, uint64_t physical, uint64_t length)
{
	while (length) {
		uint32_t piece = piece_of(region_of(table, physical), physical, length);

		if (!piece)
			return false;
		physical += piece;
		length -= piece;
	}
	return true;
}

static int collect(struct rdma *rdma, uint64_t *began)
{
	struct ibv_wc completion;
	uint64_t index = rdma->finished % SLOTS;

	if (rdma_complete(rdma, &completion, began, READ_MS))
		return -ENODEV;
	if (completion.wr_id != index)
		return rdma_lose(rdma, "this machine's RDMA device fails");
	memcpy(rdma->slot[index].into, rdma->buffer + index * SLOT_BYTES, rdma->slot[index].length);
	rdma->finished++;
	return 0;
}

static int post(struct rdma *rdma, const struct tlr_region *region, uint64_t physical, void *into,
		uint32_t length)
{
	uint64_t index = rdma->posted % SLOTS;
	struct ibv_sge piece = { (uintptr_t)rdma->buffer + index * SLOT_BYTES, length,
				 rdma->mr->lkey };
	struct ibv_send_wr request = {
		.wr_id = index, .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
		.wr.rdma = { .remote_addr = physical, .rkey = region->rkey },
	}, *bad;

	rdma->slot[index] = (struct slot){ into, length };
	if (ibv_post_send(rdma->id->qp, &request, &bad))
		return rdma_lose(rdma, "this machine's RDMA device takes no request");
	rdma->posted++;
	return 0;
}

static int rdma_read_together(struct source *source, struct source_place *place, size_t places)
{
	struct rdma *rdma = source->state;
	int status = *rdma->reason ? -ENODEV : 0;
	uint64_t began = 0;	/* of all reads together */
	size_t i;

	for (i = 0; i < places && !status; i++) {
		uint64_t at = place[i].physical, left = place[i].length;
		uint8_t *into = place[i].into;

		place[i].status = is_memory(rdma->table, at, left) ? 0 : -EFAULT;
		while (!place[i].status && left && !status) {
			const struct tlr_region *region = region_of(rdma->table, at);
			uint32_t piece = piece_of(region, at, left);

			if (rdma->posted - rdma->finished == SLOTS)
				status = collect(rdma, &began);
			status = status ? status : post(rdma, region, at, into, piece);
			at += piece;
			into += piece;
			left -= piece;
		}
	}
	while (!status && rdma->finished < rdma->posted)
		status = collect(rdma, &began);
	return status;
}

static int rdma_read(struct source *source, uint64_t physical, void *into, size_t length)
{
	struct source_place place = { physical, into, length, 0 };
	int status = rdma_read_together(source, &place, 1);

	return status ? status : place.status;
}

static int rdma_check(struct source *source)
{
	return rdma_check_events(source->state);
}

static int rdma_events(struct source *source)
{
	return ((struct rdma *)source->state)->channel->fd;
}

static char *rdma_describe(struct source *source)
{
	const struct tlr_table *table = ((struct rdma *)source->state)->table;
	char *text = NULL;
	size_t length;
	FILE *lines = open_memstream(&text, &length);
	uint32_t i;

	if (!lines)
		return NULL;
	fprintf(lines, "note %#llx\n", (unsigned long long)table->vmcoreinfo);
	for (i = 0; i < table->regions; i++)
		fprintf(lines, "region %#llx %#llx\n", (unsigned long long)table->region[i].start,
			(unsigned long long)table->region[i].length);
	fclose(lines);
	return text;
}

static const char *rdma_reason(const struct source *source)
{
	return ((const struct rdma *)source->state)->reason;
}

static void rdma_close(struct source *source)
{
	rdma_disconnect_target(source->state);
	free(source->state);
}

static int rdma_open(struct source *source, const char *rest, char *error)
{
	char host[256], port[8];
	struct rdma *rdma;
	struct key key;
	const struct tlr_region *last;
	int at = 0, status;

	if (sscanf(rest, "%255[^,],%7[0-9],%n", host, port, &at) != 2 || !at || !rest[at])
		return source_fail(error, -EINVAL, "'%s' is not HOST,PORT,KEY_FILE", rest);
	status = key_load(&key, rest + at, error);
	if (status)
		return status;
	source->state = rdma = calloc(1, sizeof(*rdma));
	if (!rdma)
		return source_fail(error, -ENOMEM, "out of memory");
	rdma->call = library_load(error);
	status = rdma->call ? rdma_connect_target(rdma, host, port, &key) : -ENOENT;
	if (status && rdma->call)
		source_fail(error, status, "%s: %s", host, rdma->reason);
	if (status) {
		source_close(source);
		return status;
	}
	last = &rdma->table->region[rdma->table->regions - 1];
	source->size = last->start + last->length;
	return 0;
}

const struct source_kind source_rdma = {
	.name = "rdma",
	.form = "rdma:HOST,PORT,KEY_FILE",
	.open = rdma_open,
	.read = rdma_read,
	.read_together = rdma_read_together,
	.check = rdma_check,
	.close = rdma_close,
	.describe = rdma_describe,
	.events = rdma_events,
	.reason = rdma_reason,
};
