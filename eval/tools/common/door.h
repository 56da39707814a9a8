/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * door.h - a ring of the module opened without the library, so that its door can be knocked at by
 * either trap. Requests are queued by the library's inline functions, on `door.batch`.
 */
#ifndef EVAL_DOOR_H
#define EVAL_DOOR_H

#include <stdbool.h>
#include <trapless.h>
#include <sys/syscall.h>

#include "traps.h"

struct door {
	struct tl_batch batch;
	int fd;
};

/* entries: a power of two, up to TL_ENTRIES_MAX. 0 or -errno. */
int door_open(struct door *door, unsigned int entries);
void door_close(struct door *door);

/* Whether `int $0x80` makes calls: a kernel without 32-bit calls answers it with a fault. */
bool door_int_works(void);

/* One crossing for n requests from slot 0 on; what the door answers. The slots are free then. */
static inline __attribute__((always_inline)) int door_knock(struct door *door, unsigned int n,
							      bool by_int)
{
	long done;

	done = by_int ? trap_int3(INT_NR_LSEEK, (uint64_t)door->fd, (uint64_t)TL_BATCH(0, n),
				  TL_DOOR_BATCH)
		      : trap_fast3(SYS_lseek, (uint64_t)door->fd, (uint64_t)TL_BATCH(0, n),
				   TL_DOOR_BATCH);
	door->batch.next = door->batch.requests;
	return (int)done;
}

#endif /* EVAL_DOOR_H */
