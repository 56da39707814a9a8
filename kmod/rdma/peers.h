/* SPDX-License-Identifier: GPL-2.0-only */
/* Declares the peers: which observers may connect. */
#ifndef TLR_PEERS_H
#define TLR_PEERS_H

#include <rdma/rdma_cm.h>

int tlr_peers_init(void);
/* Whether the peer of a request may connect: 0 or an enum tlr_reason. */
int tlr_peers_check(const struct rdma_cm_id *id);

#endif
