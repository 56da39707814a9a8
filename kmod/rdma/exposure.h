/* SPDX-License-Identifier: GPL-2.0-only */
/* Declares the exposure of memory: its registration, for one connection and for reading alone. */
#ifndef TLR_EXPOSURE_H
#define TLR_EXPOSURE_H

#include <linux/scatterlist.h>

#include "connection.h"

struct tlr_exposed {
	struct ib_mr *mr;
	struct scatterlist list;
	bool mapped;
};

/*
 * Registers all System RAM that is online and fills in the table's regions: 0 or an error, -EPERM
 * where the kernel is locked down, as /proc/kcore does.
 */
int tlr_exposure_add(struct tlr_connection *connection);
/* Undoes it. The queue pair is gone. */
void tlr_exposure_remove(struct tlr_connection *connection);

#endif
