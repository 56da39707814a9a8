/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * internal.h - what the library's files share with one another and with nobody else: objects that
 * a fork leaves behind, the device, plain execution of one request. Names start with tl_ all the
 * same, because they are visible in libtrapless.a; the symbol map hides them in the shared library.
 */
#ifndef TRAPLESS_LIB_INTERNAL_H
#define TRAPLESS_LIB_INTERNAL_H

#include <stddef.h>
#include <stdint.h>
#include <trapless.h>

/* ---- object.c: memory that reads as zeros in the child of a fork ------------------------- */

/* The part of an object that a child keeps, so that it can release what it inherited. */
struct tl_kept {
	size_t bytes;		/* of the whole object, this page included */
	int fd;			/* /dev/trapless, or -1 */
	void *ring;		/* the shared mapping, or NULL; not mapped in a child */
	size_t ring_bytes;
	void *heap;		/* one block of malloc(), or NULL */
};

int tl_object_create(void **object, size_t bytes);
/* `own`: this process made the object. Unmaps the ring, closes the device, frees the memory. */
void tl_object_destroy(void *object, bool own);
struct tl_kept *tl_object_kept(void *object);
/* As reallocarray(3), but leaves errno alone. */
void *tl_heap_resize(void *old, size_t count, size_t bytes);

/* ---- backend.c: module or plain, and the module's device --------------------------------- */

/*
 * Decides by flags and TRAPLESS_BACKEND and, for the module, opens the device, sets a ring up and
 * maps it into kept->fd, ->ring, ->ring_bytes.
 */
int tl_backend_open(enum tl_backend *backend, struct tl_kept *kept, const struct tl_setup *setup,
		    unsigned int flags);
int tl_device_ioctl(int fd, unsigned long request, void *argument);
/* Copies `counts` out as far as the caller's stats->size reaches. */
int tl_stats_copy(struct tl_stats *stats, const struct tl_stats *counts);
/* The module's counts plus the library's own in *extra. */
int tl_stats_module(int fd, struct tl_stats *stats, const struct tl_stats *extra);

/* ---- calls.c, plain.c -------------------------------------------------------------------- */

/* Class of a call, or -ENOSYS. */
int tl_call_lookup(uint32_t nr);

/*
 * Executes one request by a plain call, on behalf of a batch (least = TL_CALL_BATCH) or a worker
 * (TL_CALL_ANY): a call of a lower class is answered -EOPNOTSUPP as by the module. Writes the
 * result. Returns whether a system call was really made.
 */
bool tl_plain_execute(struct tl_request *request, enum tl_call_class least);
/* state = TL_DONE with release: last, so that whoever sees it sees the result and the counts. */
void tl_plain_complete(struct tl_request *request);

#endif /* TRAPLESS_LIB_INTERNAL_H */
