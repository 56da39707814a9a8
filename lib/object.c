// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * object.c - memory of the library's objects. It owns how an object notices that it is in the child
 * of a fork, and that errno survives a lack of memory; it does not own what is in the object.
 *
 * A ring is not inherited (the module maps it VM_DONTCOPY), so in a child every pointer to it would
 * be a trap. An object therefore is a mapping of its own: one page that a child inherits, then the
 * object itself under MADV_WIPEONFORK, which a child reads as zeros whichever way it was forked.
 * Zero entries mean "full" to the inline add and "not yours" to everything else, at the price of no
 * instruction in either.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096u

_Static_assert(sizeof(struct tl_kept) <= PAGE_BYTES, "the kept part fits its page");

struct tl_kept *tl_object_kept(void *object)
{
	return (struct tl_kept *)(void *)((char *)object - PAGE_BYTES);
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
	struct tl_kept *kept;
	char *memory;

	memory = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		goto failed;
	if (madvise(memory + PAGE_BYTES, whole - PAGE_BYTES, MADV_WIPEONFORK))
		goto unmap;
	kept = (struct tl_kept *)(void *)memory;
	kept->bytes = whole;
	kept->fd = -1;
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
	struct tl_kept *kept = tl_object_kept(object);
	int saved = errno;

	free(kept->heap);
	if (own && kept->ring)
		munmap(kept->ring, kept->ring_bytes);
	if (kept->fd >= 0)
		close(kept->fd);
	munmap(kept, kept->bytes);
	errno = saved;
}
