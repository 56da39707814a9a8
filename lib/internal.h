/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * Functions that the library's files share and that programs do not see: objects that survive a
 * fork, the choice of a backend, and the plain execution of one request. Their names begin with
 * tl_, because libtrapless.a shows them; the symbol map hides them in the shared library.
 *
 * Errors: they return -errno and leave errno alone.
 */
#ifndef TRAPLESS_LIB_INTERNAL_H
#define TRAPLESS_LIB_INTERNAL_H

#include <stddef.h>
#include <stdint.h>
#include <trapless.h>

/* ---- object.c: memory that reads as zeros in the child of a fork ------------------------- */

/* The part of an object that a child can read, so that it can free what it has inherited. */
struct tl_object_header {
	size_t bytes;		/* of the whole object with this page */
	int fd;			/* /dev/trapless, or -1 */
	int event_fd;		/* what an event loop waits for, or -1 */
	void *ring;		/* the shared mapping, or NULL; not mapped in a child */
	size_t ring_bytes;
	void *heap;		/* one block of malloc(), or NULL */
};

int tl_object_create(void **object, size_t bytes);
/* Unmaps the ring if this process created the object (`own`), closes the device, frees memory. */
void tl_object_destroy(void *object, bool own);
struct tl_object_header *tl_header_of(void *object);
/* Does what reallocarray(3) does, but leaves errno alone. */
void *tl_heap_resize(void *old, size_t count, size_t bytes);

/* ---- backend.c: module or plain, and the module's device --------------------------------- */

/*
 * Chooses a backend by `flags` and TRAPLESS_BACKEND. For the module it opens the device, sets up a
 * ring, maps it, and stores all three to header->fd, ->ring and ->ring_bytes.
 */
int tl_backend_open(enum tl_backend *backend, struct tl_object_header *header,
		    const struct tl_setup *setup, unsigned int flags);
int tl_device_ioctl(int fd, unsigned long request, void *argument);
/* Copies as much of `counts` as the caller's stats->size has room for. */
int tl_stats_copy(struct tl_stats *stats, const struct tl_stats *counts);
/* Reads the module's counts and adds the library's own counts of *extra. */
int tl_stats_module(int fd, struct tl_stats *stats, const struct tl_stats *extra);

/* ---- calls.c ----------------------------------------------------------------------------- */

/* Returns the class of a call, or -ENOSYS. */
int tl_call_lookup(uint32_t nr);

/*
 * Executes one request by a plain call and writes its result. `least` is TL_CALL_BATCH for a batch
 * and TL_CALL_ANY for a worker: like the module, the function answers a call of a lower class with
 * -EOPNOTSUPP. Returns whether it has made a system call.
 */
bool tl_plain_execute(struct tl_request *request, enum tl_call_class least);
/*
 * Stores TL_DONE with release. It is the last step, so that a thread that sees the state sees the
 * result and the counts, too.
 */
void tl_plain_complete(struct tl_request *request);

/* ---- program.c --------------------------------------------------------------------------- */

/*
 * Executes the program in requests[0..end-1] by plain calls, from program->at on. Returns 0 at the
 * end, -EINTR after a call that a handler interrupted, or -ETIME when program->steps is 0.
 */
int tl_program_execute(struct tl_program *program, struct tl_request *requests, uint32_t end,
		       struct tl_stats *counts);
/*
 * Does the same for a worker: makes the calls that a worker may make, and with `chain` ends at the
 * first error of a step that does not jump. *result: of the last step.
 */
int tl_program_serve(struct tl_program *program, struct tl_request *requests, uint32_t end,
		     bool chain, int64_t *result, struct tl_stats *counts);
/* Completes the step at program->at, of which *step is a copy, and goes on to the next one. */
void tl_program_complete_step(struct tl_program *program, struct tl_request *requests, uint32_t end,
			      const struct tl_request *step, int64_t result);

#endif /* TRAPLESS_LIB_INTERNAL_H */
