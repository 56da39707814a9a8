/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * The descriptors that an engine has opened for JavaScript and nobody has closed. A thread of Node
 * may end at any time, and what it then has open would stay open as long as the process.
 */
#ifndef TRAPLESS_NODE_DESCRIPTORS_H
#define TRAPLESS_NODE_DESCRIPTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct descriptors {
	uint64_t *bits;		/* one for each number */
	size_t words;
};

/* Returns false where memory is short. */
bool tln_descriptors_add(struct descriptors *descriptors, int fd);
void tln_descriptors_remove(struct descriptors *descriptors, int fd);
/* Closes all and frees the list. */
void tln_descriptors_close(struct descriptors *descriptors);

#endif /* TRAPLESS_NODE_DESCRIPTORS_H */
