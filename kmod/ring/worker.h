/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Workers: threads of the process that wait in the kernel and make other threads' requests. This
 * header owns the entry; queue.h owns where requests come from.
 */
#ifndef TLK_WORKER_H
#define TLK_WORKER_H

struct file;
struct tlk_ring;

/* TL_IOC_ENTER. */
long tlk_worker_serve(struct tlk_ring *ring, struct file *file);

#endif /* TLK_WORKER_H */
