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
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096u

_Static_assert(sizeof(struct tl_object_header) <= PAGE_BYTES, "the header fits its page");

struct tl_object_header *tl_header_of(void *object)
{
	return (struct tl_object_header *)(void *)((char *)object - PAGE_BYTES);
}

void *tl_heap_resize(void *old, size_t count, size_t bytes)
{
	int saved = errno;
	void *memory = reallocarray(old, count, bytes);

	errno = saved;
	return memory;
}

int tl_object_create(void **object, size_t bytes)
{
	size_t whole = PAGE_BYTES + ((bytes + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1));
	int saved = errno, error;
	struct tl_object_header *header;
	char *memory;

	memory = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		goto failed;
	if (madvise(memory + PAGE_BYTES, whole - PAGE_BYTES, MADV_WIPEONFORK))
		goto unmap;
	header = (struct tl_object_header *)(void *)memory;
	header->bytes = whole;
	header->fd = -1;
	header->event_fd = -1;
	*object = memory + PAGE_BYTES;
	return 0;

unmap:
	error = errno;
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

	free(header->heap);
	if (own && header->ring)
		munmap(header->ring, header->ring_bytes);
	if (header->fd >= 0)
		close(header->fd);
	if (header->event_fd >= 0)
		close(header->event_fd);
	munmap(header, header->bytes);
	errno = saved;
}
