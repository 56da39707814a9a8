// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads memory that is in files: the shared memory backend of a running VM, a saved image, or the
 * memory of a process by its file in /proc. It owns the table of regions, the hole that a PC's
 * memory has below 4 GiB, and the handling of a file that shrinks under its mapping.
 *
 * What can be mapped is mapped. A process's memory cannot be mapped: each read takes a system call.
 * The right to read it was checked when the file was opened, by whoever passed the descriptor on.
 *
 * A load from a page that a file has lost raises SIGBUS. The handler replaces the whole mapping
 * by empty memory and notes that the source is gone: the load ends, and others cost nothing extra.
 * So at most one such source is open at a time.
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

#include "limits.h"

#define ABOVE_HOLE (4ull << 30)
#define PAGE 4096ull

struct region {
	uint64_t start;		/* physical */
	uint64_t length;
	uint64_t offset;	/* in the file */
	int descriptor;
	uint8_t *mapped;	/* NULL: read by the descriptor */
};

/* A block that one read has fetched. It lies in one page, so all of it exists, or nothing. */
struct block {
	uint64_t pass;		/* in which it was read; 0: it is empty */
	uint64_t start;		/* physical */
	uint8_t bytes[READ_BLOCK_BYTES];
};

struct ramfile {
	struct region region[REGIONS_MAX];
	struct block block[READ_BLOCKS];
	unsigned int next;	/* block to be replaced */
	unsigned int regions;
	int opened;		/* the descriptor that is ours to close, or -1 */
	struct sigaction before;
};

/* The source whose mappings the handler replaces; set before the handler is installed. */
static struct ramfile *handled;
static volatile sig_atomic_t gone;

static void on_bus_error(int number, siginfo_t *info, void *context)
{
	const uint8_t *at = info->si_addr;
	unsigned int i;

	(void)context;
	for (i = 0; i < handled->regions; i++) {
		const struct region *region = &handled->region[i];

		if (region->mapped && at >= region->mapped &&
		    at < region->mapped + region->length &&
		    mmap(region->mapped, region->length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS |
			 MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED) {
			gone = 1;
			return;
		}
	}
	signal(number, SIG_DFL);	/* not ours: the load is repeated and ends the process */
}

static int install_handler(struct ramfile *file, char *error)
{
	struct sigaction action = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };

	if (handled)
		return source_fail(error, -EBUSY, "another file is mapped already");
	handled = file;
	gone = 0;
	sigemptyset(&action.sa_mask);
	sigaction(SIGBUS, &action, &file->before);
	return 0;
}

static void ram_close(struct source *source)
{
	struct ramfile *file = source->state;
	unsigned int i;

	if (handled == file) {
		sigaction(SIGBUS, &file->before, NULL);
		handled = NULL;
	}
	for (i = 0; i < file->regions; i++)
		if (file->region[i].mapped)
			munmap(file->region[i].mapped, file->region[i].length);
	if (file->opened >= 0)
		close(file->opened);
	free(file);
}

/* Adds a region. Where its file cannot be mapped it is read, if `readable`. */
static int add(struct ramfile *file, struct region region, bool readable, char *error)
{
	void *memory = mmap(NULL, region.length, PROT_READ, MAP_SHARED, region.descriptor,
			    (off_t)region.offset);

	if (memory == MAP_FAILED && !readable)
		return source_fail(error, -errno, "cannot be mapped: %m");
	region.mapped = memory == MAP_FAILED ? NULL : memory;
	file->region[file->regions++] = region;
	return 0;
}

static int begin(struct source *source, char *error)
{
	struct ramfile *file = calloc(1, sizeof(*file));

	if (!file)
		return source_fail(error, -ENOMEM, "out of memory");
	file->opened = -1;
	source->state = file;
	return 0;
}

static int finish(struct source *source, int status, char *error)
{
	struct ramfile *file = source->state;
	unsigned int i;

	for (i = 0; i < file->regions; i++) {
		uint64_t end = file->region[i].start + file->region[i].length;

		source->size = end > source->size ? end : source->size;
	}
	if (!status)
		status = install_handler(file, error);
	if (status)
		source_close(source);
	return status;
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

static int open_file(struct ramfile *file, const char *path, uint64_t low, char *error)
{
	struct stat status;
	off_t end;
	int failed;

	file->opened = open(path, O_RDONLY | O_CLOEXEC);
	if (file->opened < 0 || fstat(file->opened, &status))
		return source_fail(error, -errno, "%s: %m", path);
	if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode))
		return source_fail(error, -EINVAL, "%s is not a file that holds memory", path);
	end = lseek(file->opened, 0, SEEK_END);	/* st_size is 0 of a device */
	if (end <= 0)
		return source_fail(error, -EINVAL, "%s is empty", path);
	if (!low || low > (uint64_t)end)
		low = (uint64_t)end;
	failed = add(file, (struct region){ .length = low, .descriptor = file->opened }, false,
		     error);
	if (!failed && low < (uint64_t)end)
		failed = add(file, (struct region){ .start = ABOVE_HOLE, .offset = low,
			     .length = (uint64_t)end - low, .descriptor = file->opened }, false,
			     error);
	return failed;
}

static int ram_open(struct source *source, const char *rest, char *error)
{
	char *path = NULL;
	uint64_t low = 0;
	int status = begin(source, error);

	if (status)
		return status;
	status = parse(rest, &path, &low, error);
	if (!status)
		status = open_file(source->state, path, low, error);
	free(path);
	return finish(source, status, error);
}

/* START:LENGTH:DESCRIPTOR:OFFSET; moves *text behind it. */
static int parse_region(const char **text, struct region *region)
{
	uint64_t number[4];
	unsigned int i;
	char *end;

	for (i = 0; i < 4; i++) {
		if (**text < '0' || **text > '9')
			return -EINVAL;
		errno = 0;
		number[i] = strtoull(*text, &end, 0);
		if (errno || *end != (i < 3 ? ':' : *end == ',' ? ',' : 0))
			return -EINVAL;
		*text = *end ? end + 1 : end;
	}
	region->start = number[0];
	region->length = number[1];
	region->descriptor = (int)number[2];
	region->offset = number[3];
	if ((number[0] | number[1] | number[3]) % PAGE)
		return -EINVAL;
	return number[1] && number[2] <= INT32_MAX && number[0] + number[1] > number[0] ? 0
									       : -EINVAL;
}

static int regions_open(struct source *source, const char *rest, char *error)
{
	struct ramfile *file;
	const char *at = rest;
	int status = begin(source, error);

	if (status)
		return status;
	file = source->state;
	do {
		struct region region = { .start = 0 };

		if (file->regions == REGIONS_MAX || parse_region(&at, &region))
			status = source_fail(error, -EINVAL, "'%s' is not at most %d regions of "
					     "pages like START:LENGTH:DESCRIPTOR:OFFSET", rest,
					     REGIONS_MAX);
		else if (fcntl(region.descriptor, F_GETFD) < 0)
			status = source_fail(error, -EBADF, "no file is open as descriptor %d",
					     region.descriptor);
		else
			status = add(file, region, true, error);
	} while (!status && *at);
	return finish(source, status, error);
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

static const struct region *region_of(const struct ramfile *file, uint64_t physical, size_t length)
{
	unsigned int i;

	for (i = 0; i < file->regions; i++) {
		const struct region *region = &file->region[i];
		uint64_t into = physical - region->start;

		if (into < region->length)
			return length <= region->length - into ? region : NULL;
	}
	return NULL;
}

static int read_by_call(const struct region *region, uint64_t physical, void *into, size_t length)
{
	ssize_t got = pread(region->descriptor, into, length,
			    (off_t)(physical - region->start + region->offset));

	if (got == (ssize_t)length)
		return 0;
	return got < 0 ? -EFAULT : -ENODEV;	/* a process that has ended has no byte left */
}

/* The same from the block that was read in this pass, or is read now; regions are whole pages. */
static int read_in_pass(struct ramfile *file, uint64_t pass, const struct region *region,
			uint64_t physical, void *into, size_t length)
{
	uint64_t start = physical & ~(uint64_t)(READ_BLOCK_BYTES - 1);
	struct block *block = NULL;
	unsigned int i;
	int status;

	if (physical + length > start + READ_BLOCK_BYTES)
		return read_by_call(region, physical, into, length);
	for (i = 0; i < READ_BLOCKS && !block; i++)
		if (file->block[i].pass == pass && file->block[i].start == start)
			block = &file->block[i];
	if (!block) {
		block = &file->block[file->next++ % READ_BLOCKS];
		block->pass = 0;
		status = read_by_call(region, start, block->bytes, READ_BLOCK_BYTES);
		if (status)
			return status;
		block->pass = pass;
		block->start = start;
	}
	memcpy(into, block->bytes + (physical - start), length);
	return 0;
}

static int ram_read(struct source *source, uint64_t physical, void *into, size_t length)
{
	const struct region *region = region_of(source->state, physical, length);

	if (!region)
		return -EFAULT;
	if (region->mapped) {
		load(region->mapped + (physical - region->start), into, length);
		return gone ? -ENODEV : 0;
	}
	if (source->pass)
		return read_in_pass(source->state, source->pass, region, physical, into, length);
	return read_by_call(region, physical, into, length);
}

/*
 * A file that has become shorter within its last page raises no signal: its size is looked at. The
 * first byte that was read is looked at, too: of a process that has ended, no byte is left.
 */
static int ram_check(struct source *source)
{
	const struct ramfile *file = source->state;
	unsigned int i;

	for (i = 0; i < file->regions && !gone; i++) {
		const struct region *region = &file->region[i];
		struct stat status;
		char byte;

		if (!region->mapped) {
			if (!pread(region->descriptor, &byte, 1, (off_t)region->offset))
				return -ENODEV;
		} else if (fstat(region->descriptor, &status) ||
			   (S_ISREG(status.st_mode) &&
			    (uint64_t)status.st_size < region->offset + region->length)) {
			return -ENODEV;
		}
	}
	return gone ? -ENODEV : 0;
}

const struct source_kind source_ram = {
	.name = "ram",
	.form = "ram:FILE[,hole=BYTES]",
	.open = ram_open,
	.read = ram_read,
	.check = ram_check,
	.close = ram_close,
};

const struct source_kind source_regions = {
	.name = "regions",
	.form = "regions:START:LENGTH:DESCRIPTOR:OFFSET[,...]",
	.open = regions_open,
	.read = ram_read,
	.check = ram_check,
	.close = ram_close,
};
