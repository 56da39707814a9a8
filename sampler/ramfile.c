// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ramfile.c - reads memory that is a file: the shared memory backend of a running VM, or a saved
 * image. It owns the mapping, the hole that a PC's memory has below 4 GiB, and the handling of a
 * file that shrinks under the mapping.
 *
 * A load from a page that the file has lost raises SIGBUS. The handler replaces the whole mapping
 * by empty memory and notes that the source is gone: the load ends, and others cost nothing extra.
 * So at most one file is mapped at a time.
 */
#include "source.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ABOVE_HOLE (4ull << 30)

struct ramfile {
	const uint8_t *memory;
	uint64_t bytes;		/* of the file, when it was mapped */
	uint64_t low;		/* of them below the hole; all, where there is none */
	int descriptor;
	struct sigaction before;
};

/* The mapping that the handler replaces; set before the handler is installed. */
static struct {
	uint8_t *start;
	size_t bytes;
	volatile sig_atomic_t gone;
} mapped;

static void on_bus_error(int number, siginfo_t *info, void *context)
{
	const uint8_t *at = info->si_addr;

	(void)context;
	if (at >= mapped.start && at < mapped.start + mapped.bytes &&
	    mmap(mapped.start, mapped.bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED |
		 MAP_NORESERVE, -1, 0) != MAP_FAILED) {
		mapped.gone = 1;
		return;
	}
	signal(number, SIG_DFL);	/* not ours: the load is repeated and ends the process */
}

static int install_handler(struct ramfile *file)
{
	struct sigaction action = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };

	if (mapped.start)
		return -EBUSY;
	mapped.start = (uint8_t *)file->memory;
	mapped.bytes = file->bytes;
	mapped.gone = 0;
	sigemptyset(&action.sa_mask);
	sigaction(SIGBUS, &action, &file->before);
	return 0;
}

/* PATH[,hole=BYTES]; a path may hold commas, so the option is looked for from the end. */
static int parse(const char *rest, char **path, uint64_t *low, char *error)
{
	const char *option = strrchr(rest, ',');

	*low = 0;
	if (option && strncmp(option, ",hole=", 6))
		option = NULL;
	if (option && source_number(option + 1, "hole", low, error))
		return -EINVAL;
	if (*low > ABOVE_HOLE)
		return source_fail(error, -EINVAL, "a hole at %#llx is not below 4 GiB",
				   (unsigned long long)*low);
	*path = option ? strndup(rest, (size_t)(option - rest)) : strdup(rest);
	return *path ? 0 : source_fail(error, -ENOMEM, "out of memory");
}

static int map(struct ramfile *file, const char *path, char *error)
{
	struct stat status;
	void *memory;
	off_t end;

	file->descriptor = open(path, O_RDONLY | O_CLOEXEC);
	if (file->descriptor < 0)
		return source_fail(error, -errno, "%s: %m", path);
	if (fstat(file->descriptor, &status))
		return source_fail(error, -errno, "%s: %m", path);
	if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode))
		return source_fail(error, -EINVAL, "%s is not a file that holds memory", path);
	end = lseek(file->descriptor, 0, SEEK_END);	/* st_size is 0 of a device */
	if (end <= 0)
		return source_fail(error, -EINVAL, "%s is empty", path);
	file->bytes = (uint64_t)end;
	memory = mmap(NULL, file->bytes, PROT_READ, MAP_SHARED, file->descriptor, 0);
	if (memory == MAP_FAILED)
		return source_fail(error, -errno, "%s: cannot be mapped: %m", path);
	file->memory = memory;
	return 0;
}

static void ram_close(struct source *source)
{
	struct ramfile *file = source->state;

	if (file->memory) {
		if (mapped.start == file->memory) {
			sigaction(SIGBUS, &file->before, NULL);
			mapped.start = NULL;
		}
		munmap((void *)file->memory, file->bytes);
	}
	if (file->descriptor >= 0)
		close(file->descriptor);
	free(file);
}

static int ram_open(struct source *source, const char *rest, char *error)
{
	struct ramfile *file = calloc(1, sizeof(*file));
	char *path = NULL;
	int status;

	if (!file)
		return source_fail(error, -ENOMEM, "out of memory");
	file->descriptor = -1;
	source->state = file;
	status = parse(rest, &path, &file->low, error);
	if (!status)
		status = map(file, path, error);
	if (!status) {
		if (!file->low || file->low > file->bytes)
			file->low = file->bytes;
		source->size = file->low < file->bytes ? ABOVE_HOLE + (file->bytes - file->low)
						       : file->bytes;
		status = install_handler(file);
		if (status)
			source_fail(error, status, "another file is mapped already");
	}
	free(path);
	if (status)
		source_close(source);
	return status;
}

/* Finds the offset of `length` bytes at a physical address; false where there are none. */
static bool locate(const struct ramfile *file, uint64_t physical, size_t length, uint64_t *offset)
{
	if (physical < file->low) {
		*offset = physical;
		return length <= file->low - physical;
	}
	if (physical < ABOVE_HOLE || file->low == file->bytes)
		return false;
	physical -= ABOVE_HOLE;
	*offset = file->low + physical;
	return physical < file->bytes - file->low && length <= file->bytes - file->low - physical;
}

/* An aligned word is read by one load, so that it cannot be torn; anything else may be. */
static void load(const uint8_t *from, void *into, size_t length)
{
	if (length == 8 && !((uintptr_t)from & 7)) {
		uint64_t word = __atomic_load_n((const uint64_t *)from, __ATOMIC_RELAXED);

		memcpy(into, &word, sizeof(word));
	} else if (length == 4 && !((uintptr_t)from & 3)) {
		uint32_t word = __atomic_load_n((const uint32_t *)from, __ATOMIC_RELAXED);

		memcpy(into, &word, sizeof(word));
	} else if (length == 2 && !((uintptr_t)from & 1)) {
		uint16_t word = __atomic_load_n((const uint16_t *)from, __ATOMIC_RELAXED);

		memcpy(into, &word, sizeof(word));
	} else {
		memcpy(into, from, length);
	}
	__asm__ volatile("" ::: "memory");	/* memory is the target's: it changes by itself */
}

static int ram_read(struct source *source, uint64_t physical, void *into, size_t length)
{
	const struct ramfile *file = source->state;
	uint64_t offset;

	if (!locate(file, physical, length, &offset))
		return -EFAULT;
	load(file->memory + offset, into, length);
	return mapped.gone ? -ENODEV : 0;
}

/* A file that has become shorter within its last page raises no signal: check its size. */
static int ram_check(struct source *source)
{
	const struct ramfile *file = source->state;
	struct stat status;

	if (mapped.gone || fstat(file->descriptor, &status))
		return -ENODEV;
	return S_ISREG(status.st_mode) && (uint64_t)status.st_size < file->bytes ? -ENODEV : 0;
}

const struct source_kind source_ram = {
	.name = "ram",
	.form = "ram:FILE[,hole=BYTES]",
	.open = ram_open,
	.read = ram_read,
	.check = ram_check,
	.close = ram_close,
};
