/* SPDX-License-Identifier: GPL-2.0-only */
/* Workers: threads of the process that stay in the kernel and make other threads' requests. */
#ifndef TLK_WORKER_H
#define TLK_WORKER_H

struct file;
struct tlk_ring;

/* TL_IOC_ENTER. */
long tlk_worker_serve(struct tlk_ring *ring, struct file *file);

#endif /* TLK_WORKER_H */
