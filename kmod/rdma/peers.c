// SPDX-License-Identifier: GPL-2.0-only
/* Decides who may connect, and by which devices. It owns the parameters that say so. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/inet.h>
#include <linux/module.h>
#include <linux/trapless_rdma.h>
#include <net/net_namespace.h>

#include "peers.h"

#define PEERS_MAX 16

static char *allow[PEERS_MAX];
static unsigned int allowed;
module_param_array(allow, charp, &allowed, 0444);
MODULE_PARM_DESC(allow, "addresses of the observers that may connect");

static bool allow_virtual_dma;
module_param(allow_virtual_dma, bool, 0444);
MODULE_PARM_DESC(allow_virtual_dma, "for tests: also Soft-RoCE, by which an observer can panic "
		 "this machine");

static struct sockaddr_storage peers[PEERS_MAX];

static bool same_address(const struct sockaddr_storage *one, const struct sockaddr_storage *other)
{
	const struct sockaddr_in *four[] = { (const void *)one, (const void *)other };
	const struct sockaddr_in6 *six[] = { (const void *)one, (const void *)other };

	if (one->ss_family != other->ss_family)
		return false;
	if (one->ss_family == AF_INET)
		return four[0]->sin_addr.s_addr == four[1]->sin_addr.s_addr;
	return !memcmp(&six[0]->sin6_addr, &six[1]->sin6_addr, sizeof(six[0]->sin6_addr));
}

/*
 * A device that copies by this machine's processor may take a key of zero as the kernel's addresses
 * without bounds, as rdmavt's does: even for tests, only the two whose keys are checked are served.
 */
static bool may_serve(struct ib_device *device)
{
	enum rdma_driver_id driver = device->ops.driver_id;

	return !ib_uses_virt_dma(device) ||
	       (allow_virtual_dma && (driver == RDMA_DRIVER_RXE || driver == RDMA_DRIVER_SIW));
}

int tlr_peers_check(const struct rdma_cm_id *id)
{
	unsigned int i;

	for (i = 0; i < allowed; i++)
		if (same_address(&peers[i], &id->route.addr.dst_addr))
			break;
	if (i == allowed)
		return TLR_PEER;
	return may_serve(id->device) ? 0 : TLR_VIRTUAL_DMA;
}

int tlr_peers_init(void)
{
	unsigned int i;

	for (i = 0; i < allowed; i++)
		if (inet_pton_with_scope(&init_net, AF_UNSPEC, allow[i], NULL, &peers[i])) {
			pr_err("allow=%s is no address\n", allow[i]);
			return -EINVAL;
		}
	if (!allowed)
		pr_err("allow= names no observer\n");
	return allowed ? 0 : -EINVAL;
}
