/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sets a file's ring up, and takes it down with the file. This header owns the ring's beginning and
 * end; ring.h owns its memory, queue.h its queue.
 */
#ifndef TLK_SETUP_H
#define TLK_SETUP_H

#include <linux/trapless.h>

struct file;
struct seq_file;
struct tlk_ring;
struct vm_area_struct;

/* TL_IOC_SETUP, once a file. */
int tlk_setup(struct file *file, const struct tl_setup *setup);
void tlk_setup_undo(struct tlk_ring *ring);

/* mmap(2), by the process that the ring belongs to. */
int tlk_setup_mmap(struct tlk_ring *ring, struct vm_area_struct *vma);

/* TL_IOC_STATS. */
void tlk_setup_stats(struct tlk_ring *ring, struct tl_stats *stats);

/* /proc/PID/fdinfo/N: what an operator sees of a ring; NULL before TL_IOC_SETUP. */
void tlk_setup_show(struct tlk_ring *ring, struct seq_file *text);

#endif /* TLK_SETUP_H */
