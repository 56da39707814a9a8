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

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <trapless.h>

/* ---- descriptor.c: descriptors that are used only while they are the library's ------------ */

/* A pipe: its end for reading is what a loop waits for. */
struct tl_wake {
	int read_fd, write_fd;	/* or -1 */
	uint64_t device, inode;
};

/* An epoll set, and a member of it that no other set has. */
struct tl_set {
	int fd;			/* or -1 */
	int member;
};

/* Returns fd. If fd is 0 to 2, returns a copy and closes fd. An error is returned as it is. */
int tl_descriptor_keep(long fd);
/* Opens the module's device. -ENODEV: something else is in its place. */
int tl_device_open(void);
/* Is this the descriptor of the ring at that address? 0, -EBADF: it is closed, or -EINVAL. */
int tl_ring_check(int fd, const void *ring);
void tl_ring_close(int fd, const void *ring);
int tl_wake_open(struct tl_wake *wake);
void tl_wake_close(const struct tl_wake *wake);
/* Makes the pipe readable. */
void tl_wake_signal(const struct tl_wake *wake);
/* Takes signals, and returns how many. */
unsigned int tl_wake_take(const struct tl_wake *wake);
int tl_set_open(struct tl_set *set);
/* Are set and member still what they were? 0, -EBADF or -EINVAL. */
int tl_set_check(const struct tl_set *set, int member);
/* Closes the set, and a further member unless that is -1. */
void tl_set_close(const struct tl_set *set, int member);

/* ---- object.c: memory that reads as zeros in the child of a fork ------------------------- */

/* The largest page of any kernel for the processor: what begins there begins with a page. */
#ifdef __aarch64__
#define PAGE_BYTES_MAX 65536u
#else
#define PAGE_BYTES_MAX 4096u
#endif

/* The part of an object that a child can read, so that it can free what it has inherited. */
struct tl_object_header {
	size_t bytes;		/* of the whole object with this page */
	int fd;			/* /dev/trapless, or -1 */
	const char *reason;	/* why calls are plain ones, or NULL; static text */
	struct tl_wake wake;	/* what an event loop waits for without the module */
	/* The shared mapping, behind a page of own memory, or NULL; not mapped in a child. */
	void *ring;
	size_t ring_bytes;
	void *heap;		/* one block of malloc(), or NULL */
	bool kept;		/* in the list of objects that the kernel does not empty */
	struct tl_object_header *next;
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
 * ring, maps it, and stores all three to header->fd, ->ring and ->ring_bytes. For plain calls it
 * stores header->reason.
 */
int tl_backend_open(enum tl_backend *backend, struct tl_object_header *header,
		    const struct tl_setup *setup, unsigned int flags);
/*
 * A slot of a batch may be an error number up to this one: so many requests, which are never made,
 * stand before slot 0, and their results are the errors. The inline functions look for nothing.
 */
#define TL_SLOT_ERRORS 64u

/* The error for a slot that does not exist: that of the function that should have made it. */
static inline int tl_slot_error(unsigned int slot)
{
	return (int)slot < 0 ? (int)slot : -EINVAL;
}

/* How many slots that many entries get: a power of two, or 0 if they are not 1 to `most`. */
static inline unsigned int tl_entries_rounded(unsigned int entries, unsigned int most)
{
	if (!entries || entries > most)
		return 0;
	return entries == 1 ? 1 : 2u << (31 - __builtin_clz(entries - 1));
}

int tl_device_ioctl(int fd, unsigned long request, void *argument);
/* Copies as much of `counts` as the caller's stats->size has room for. */
int tl_stats_copy(struct tl_stats *stats, const struct tl_stats *counts);
/* Reads the module's counts of a ring and adds the library's own counts of *extra. */
int tl_stats_module(int fd, const void *ring, struct tl_stats *stats,
		    const struct tl_stats *extra);

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
