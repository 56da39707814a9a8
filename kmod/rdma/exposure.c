// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exposes memory to one connection: registers all System RAM that is online, for reading alone. It
 * owns the choice of what is registered. A region is read-only three times: its key grants
 * REMOTE_READ alone, its queue pair allows reads alone (observers.c), and it is mapped for the
 * device as a source of data, so that an IOMMU refuses writes.
 *
 * Registered memory is neither pinned nor copied. All of it can be read, also pages that this
 * machine's own kernel would not show: docs/security.md names them.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ioport.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/random.h>
#include <linux/security.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "exposure.h"

#define SETTLE_MS 20000u	/* for the registrations that are under way */
#define LENGTH_MAX SZ_1G	/* of a region: what a scatterlist and all devices can express */

static int map_region(struct tlr_connection *connection, struct tlr_exposed *exposed, u64 start,
		      u64 length, unsigned int page)
{
	struct ib_device *device = connection->id->device;

	sg_init_table(&exposed->list, 1);
	sg_set_page(&exposed->list, pfn_to_page(PHYS_PFN(start)), length, 0);
	if (ib_dma_map_sg(device, &exposed->list, 1, DMA_TO_DEVICE) != 1)
		return -ENOMEM;
	exposed->mapped = true;
	/* An IOMMU may have put it where large pages cannot be. */
	if (!IS_ALIGNED(sg_dma_address(&exposed->list), page) ||
	    ib_map_mr_sg(exposed->mr, &exposed->list, 1, NULL, page) != 1 ||
	    exposed->mr->length != length)
		return -EINVAL;
	return 0;
}

static int register_region(struct tlr_connection *connection, u64 start, u64 length,
			   unsigned int page)
{
	struct tlr_exposed *exposed = &connection->exposed[connection->exposures];
	struct tlr_table *table = &connection->messages->table;
	struct ib_reg_wr request = {
		.wr = { .opcode = IB_WR_REG_MR, .wr_cqe = &connection->sent,
			.send_flags = IB_SEND_SIGNALED },
		.access = IB_ACCESS_REMOTE_READ,
	};
	struct ib_mr *mr;
	int error;

	if (connection->exposures == TLR_REGIONS_MAX)
		return -E2BIG;
	mr = ib_alloc_mr(connection->pd, IB_MR_TYPE_MEM_REG, length / page);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	exposed->mr = mr;
	connection->exposures++;
	error = map_region(connection, exposed, start, length, page);
	if (error)
		return error;
	ib_update_fast_reg_key(mr, get_random_u32() & 0xff);
	mr->iova = start;
	request.mr = mr;
	request.key = mr->rkey;
	error = ib_post_send(connection->id->qp, &request.wr, NULL);
	if (error)
		return error;
	table->region[table->regions++] = (struct tlr_region){
		.start = start, .length = length, .rkey = mr->rkey };
	if (++connection->sending < TLR_REQUESTS_MAX)
		return 0;
	return tlr_connection_await(connection, &connection->sending, SETTLE_MS);
}

/* Two drivers drop a registration's page size, and take its list as one of small pages. */
static bool takes_large_pages(const struct ib_device *device)
{
	switch (device->ops.driver_id) {
	case RDMA_DRIVER_ERDMA:
	case RDMA_DRIVER_VMW_PVRDMA:
		return false;
	case RDMA_DRIVER_SIW:	/* it takes whole scatterlists, of any page size */
		return true;
	default:
		return device->attrs.page_size_cap & PMD_SIZE;
	}
}

/* Registers memory that is all online: by large pages where they fit, else by small ones. */
static int register_memory(struct tlr_connection *connection, u64 start, u64 end)
{
	u64 pages_max = connection->id->device->attrs.max_fast_reg_page_list_len;
	bool by_large = takes_large_pages(connection->id->device);

	while (start < end) {
		bool large = by_large && IS_ALIGNED(start, PMD_SIZE) && end - start >= PMD_SIZE;
		u64 page = large ? PMD_SIZE : PAGE_SIZE;
		u64 stop = large ? ALIGN_DOWN(end, PMD_SIZE) :
			   by_large ? min(end, ALIGN(start + 1, PMD_SIZE)) : end;
		u64 length = min3(stop - start, pages_max * page, (u64)LENGTH_MAX);
		int error = register_region(connection, start, length, page);

		if (error)
			return error;
		start += length;
	}
	return 0;
}

/* Registers what of a resource is online. */
static int register_resource(struct resource *resource, void *context)
{
	u64 start = PAGE_ALIGN(resource->start), end = (resource->end + 1) & PAGE_MASK;
	u64 section = (u64)PAGES_PER_SECTION << PAGE_SHIFT;
	u64 at, stop;
	int error = 0;

	for (at = start; at < end && !error; at = stop) {
		stop = min(end, ALIGN(at + 1, section));
		if (pfn_to_online_page(PHYS_PFN(at)))
			continue;
		error = start < at ? register_memory(context, start, at) : 0;
		start = stop;
	}
	return error ?: start < end ? register_memory(context, start, end) : 0;
}

int tlr_exposure_add(struct tlr_connection *connection)
{
	int error;

	connection->exposed = kvcalloc(TLR_REGIONS_MAX, sizeof(*connection->exposed), GFP_KERNEL);
	if (!connection->exposed)
		error = -ENOMEM;
	else if (security_locked_down(LOCKDOWN_KCORE))
		error = -EPERM;
	else if (connection->id->device->attrs.device_cap_flags & IB_DEVICE_MEM_MGT_EXTENSIONS)
		error = walk_iomem_res_desc(IORES_DESC_NONE,
					    IORESOURCE_SYSTEM_RAM | IORESOURCE_BUSY, 0, -1,
					    connection, register_resource);
	else
		error = -EOPNOTSUPP;
	error = error ?: tlr_connection_await(connection, &connection->sending, SETTLE_MS);
	if (error)
		pr_warn("memory cannot be registered with %s: %d\n",
			connection->id->device->name, error);
	return error;
}

void tlr_exposure_remove(struct tlr_connection *connection)
{
	while (connection->exposures) {
		struct tlr_exposed *exposed = &connection->exposed[--connection->exposures];

		ib_dereg_mr(exposed->mr);
		if (exposed->mapped)
			ib_dma_unmap_sg(connection->id->device, &exposed->list, 1, DMA_TO_DEVICE);
	}
	kvfree(connection->exposed);
}
