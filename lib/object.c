// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Memory of the library's objects. It owns how an object notices that it is in the child of a fork,
 * and keeps errno unchanged when memory is short. It does not own an object's content.
 *
 * A child does not inherit a ring, because the module maps rings with VM_DONTCOPY, so every pointer
 * to a ring would fault in a child. An object therefore is a mapping of its own: first a page that
 * a child inherits, then the object itself under MADV_WIPEONFORK, which every child reads as zeros.
 * Zero entries mean "full" to the inline add, and to all other functions that the object belongs to
 * another process. Neither check costs an instruction.
 *
 * Where the kernel or a filter does not know MADV_WIPEONFORK, a handler of fork(3) empties the
 * objects in the child. A child that a program makes by the bare system call is not noticed then.
 */
#include "internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

_Static_assert(sizeof(struct tl_object_header) <= PAGE_BYTES_MAX, "the header fits its page");

struct tl_object_header *tl_header_of(void *object)
{
	return (struct tl_object_header *)(void *)((char *)object - PAGE_BYTES_MAX);
}

void *tl_heap_resize(void *old, size_t count, size_t bytes)
{
	int saved = errno;
	void *memory = reallocarray(old, count, bytes);

	errno = saved;
	return memory;
}

/* ---- Objects that the kernel does not empty ------------------------------------------------ */

static struct tl_object_header *kept;		/* under the lock */
static bool handled;				/* the same: the handlers are registered */
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void)
{
	pthread_mutex_lock(&kept_lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&kept_lock);
}

static void after_fork_in_child(void)
{
	for (struct tl_object_header *header = kept; header; header = header->next)
		madvise((char *)header + PAGE_BYTES_MAX, header->bytes - PAGE_BYTES_MAX,
			MADV_DONTNEED);
	kept = NULL;
	pthread_mutex_unlock(&kept_lock);
}

/* From now on the object is emptied in a child. Returns 0 or an error number. */
static int keep(struct tl_object_header *header)
{
	int error = 0;

	pthread_mutex_lock(&kept_lock);
	if (!handled)
		error = pthread_atfork(before_fork, after_fork, after_fork_in_child);
	if (!error) {
		handled = true;
		header->kept = true;
		header->next = kept;
		kept = header;
	}
	pthread_mutex_unlock(&kept_lock);
	return error;
}

static void forget(const struct tl_object_header *header)
{
	struct tl_object_header **link = &kept;

	pthread_mutex_lock(&kept_lock);
	while (*link && *link != header)
		link = &(*link)->next;
	if (*link)
		*link = header->next;
	pthread_mutex_unlock(&kept_lock);
}

/* ---- Objects ------------------------------------------------------------------------------- */

int tl_object_create(void **object, size_t bytes)
{
	size_t whole = PAGE_BYTES_MAX + ((bytes + PAGE_BYTES_MAX - 1) & -(size_t)PAGE_BYTES_MAX);
	int saved = errno, error;
	struct tl_object_header *header;
	char *memory;

	memory = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		goto failed;
	header = (struct tl_object_header *)(void *)memory;
	header->bytes = whole;
	if (madvise(memory + PAGE_BYTES_MAX, whole - PAGE_BYTES_MAX, MADV_WIPEONFORK)) {
		error = keep(header);
		if (error)
			goto unmap;
	}
	errno = saved;
	header->fd = -1;
	header->wake.read_fd = header->wake.write_fd = -1;
	*object = memory + PAGE_BYTES_MAX;
	return 0;

unmap:
	munmap(memory, whole);
	errno = error;
failed:
	error = errno;
	errno = saved;
	return -error;
}

void tl_object_destroy(void *object, bool own)
{
	struct tl_object_header *header = tl_header_of(object);
	int saved = errno;

	if (header->kept)
		forget(header);
	free(header->heap);
	if (header->fd >= 0)
		tl_ring_close(header->fd, header->ring);
	if (own && header->ring)
		munmap((char *)header->ring - PAGE_BYTES_MAX, PAGE_BYTES_MAX + header->ring_bytes);
	tl_wake_close(&header->wake);
	munmap(header, header->bytes);
	errno = saved;
}
