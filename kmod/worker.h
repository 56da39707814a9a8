/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Workers: threads of the process that stay in the kernel and make other threads' requests.
 */
#ifndef TLK_WORKER_H
#define TLK_WORKER_H

#include <linux/types.h>
#include <linux/trapless.h>

struct file;
struct tlk_ring;
struct tlk_workers;

struct tlk_workers *tlk_workers_create(const struct tl_setup *setup);
void tlk_workers_destroy(struct tlk_workers *workers);

long tlk_worker_serve(struct tlk_ring *ring, struct file *file);		/* TL_IOC_ENTER */
long tlk_worker_notify(struct tlk_ring *ring, unsigned long argument);	/* TL_DOOR_NOTIFY */
long tlk_worker_wait(struct tlk_ring *ring, unsigned long argument);	/* TL_DOOR_WAIT */
void tlk_worker_shut(struct tlk_ring *ring);				/* TL_IOC_EXIT */

#endif /* TLK_WORKER_H */
