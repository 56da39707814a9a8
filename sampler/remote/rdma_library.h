/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declares the functions of librdmacm and libibverbs that the source rdma calls. The libraries are
 * loaded when such a source is opened, so the sampler runs on machines without them.
 */
#ifndef SAMPLER_RDMA_LIBRARY_H
#define SAMPLER_RDMA_LIBRARY_H

#include <rdma/rdma_cma.h>

#undef ibv_reg_mr	/* a macro about access flags that nobody uses here */

#define LIBRARY_FUNCTIONS(each) \
	each(rdma_create_event_channel) each(rdma_destroy_event_channel) \
	each(rdma_create_id) each(rdma_destroy_id) each(rdma_resolve_addr) \
	each(rdma_resolve_route) each(rdma_create_qp) each(rdma_destroy_qp) \
	each(rdma_connect) each(rdma_disconnect) each(rdma_set_option) \
	each(rdma_get_cm_event) each(rdma_ack_cm_event) each(rdma_event_str) \
	each(ibv_create_cq) each(ibv_destroy_cq) each(ibv_reg_mr) each(ibv_dereg_mr) \
	each(ibv_wc_status_str)

#define LIBRARY_FIELD(name) __typeof__(&name) name;
struct library {
	LIBRARY_FUNCTIONS(LIBRARY_FIELD)
};
#undef LIBRARY_FIELD

/* NULL, and then `error` says which package lacks. */
const struct library *library_load(char *error);

#endif
