/* SPDX-License-Identifier: GPL-2.0-only */
/* Declares the observers: all connections, from the request until nothing of one is left. */
#ifndef TLR_OBSERVERS_H
#define TLR_OBSERVERS_H

#include "connection.h"

/* Accepts a request, or refuses it. Not 0: the id is the caller's to destroy. */
int tlr_observers_accept(struct rdma_cm_id *id, const struct rdma_cm_event *event);
void tlr_observers_event(struct tlr_connection *connection, enum rdma_cm_event_type event);
/* Ends all connections. With `close`, waits for their end, and new ones are refused after that. */
void tlr_observers_end(bool close);
void tlr_observers_reopen(void);
int tlr_observers_init(void);
void tlr_observers_exit(void);

#endif
