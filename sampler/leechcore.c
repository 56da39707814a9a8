// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads the memory of real hardware through the LeechCore library: by PCIe cards, which read a
 * machine's memory as the paper's IEEE 1394 controller did, and by all other devices of the
 * library. It owns the declarations of the library's interface. The library is loaded when such a
 * source is opened, so the sampler builds and runs without it.
 *
 * LEECHCORE_LIBRARY may name the library's file; otherwise the dynamic linker looks for it.
 */
#include "source.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "limits.h"

#define PAGE 4096ull

/* LeechCore's interface, version 2: the structure is filled in by both sides. */
#define LC_VERSION 0xc0fd0002u
#define LC_PATH 260

struct lc_config {
	uint32_t version;
	uint32_t verbosity;
	char device[LC_PATH];
	char remote[LC_PATH];
	void *print;
	uint64_t end;	/* of memory; 0 on entry asks the library to find it */
	uint32_t is_volatile;
	uint32_t is_writable;
	uint32_t is_remote;
	uint32_t no_compression;
	char device_name[LC_PATH];
};

_Static_assert(offsetof(struct lc_config, print) == 528, "as the library lays it out");
_Static_assert(offsetof(struct lc_config, device_name) == 560, "as the library lays it out");

struct leechcore {
	void *library;
	void *handle;
	void *(*create)(struct lc_config *config);
	uint32_t (*read)(void *handle, uint64_t physical, uint32_t length, uint8_t *into);
	void (*close)(void *handle);
};

static const char *const names[] = { "leechcore.so", "libleechcore.so" };

static int load(struct leechcore *lc, char *error)
{
	const char *given = getenv("LEECHCORE_LIBRARY");
	size_t i;

	if (given)
		lc->library = dlopen(given, RTLD_NOW | RTLD_LOCAL);
	for (i = 0; !given && !lc->library && i < sizeof(names) / sizeof(names[0]); i++)
		lc->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (!lc->library)
		return source_fail(error, -ENOENT, "the LeechCore library cannot be loaded (%s); "
				   "set LEECHCORE_LIBRARY to its leechcore.so", dlerror());
	lc->create = (void *(*)(struct lc_config *))dlsym(lc->library, "LcCreate");
	lc->read = (uint32_t (*)(void *, uint64_t, uint32_t, uint8_t *))dlsym(lc->library,
									       "LcRead");
	lc->close = (void (*)(void *))dlsym(lc->library, "LcClose");
	if (!lc->create || !lc->read || !lc->close)
		return source_fail(error, -ENOENT, "%s is not a LeechCore library: LcCreate, "
				   "LcRead or LcClose is not in it",
				   given ? given : "the library found");
	return 0;
}

static int connect_device(struct source *source, const char *device, char *error)
{
	struct lc_config config = { .version = LC_VERSION };
	struct leechcore *lc = source->state;

	if (!*device || strlen(device) >= LC_PATH)
		return source_fail(error, -EINVAL, "'%s' is not a LeechCore device; one is like "
				   "fpga, or file://IMAGE", device);
	strcpy(config.device, device);
	lc->handle = lc->create(&config);
	if (!lc->handle)
		return source_fail(error, -ENODEV, "LeechCore cannot open the device '%s'", device);
	source->size = config.end;
	return 0;
}

static void leechcore_close(struct source *source)
{
	struct leechcore *lc = source->state;

	if (lc->handle)
		lc->close(lc->handle);
	/* The library stays loaded: it leaves threads behind that run its code. */
	free(lc);
}

static int leechcore_open(struct source *source, const char *rest, char *error)
{
	int status;

	source->state = calloc(1, sizeof(struct leechcore));
	if (!source->state)
		return source_fail(error, -ENOMEM, "out of memory");
	status = load(source->state, error);
	if (!status)
		status = connect_device(source, rest, error);
	if (status)
		source_close(source);
	return status;
}

/*
 * Every device of the library can read whole pages, and some cannot read parts of one: the wanted
 * bytes are cut out of pages. A page costs little more than a word, because most of the time goes
 * into reaching the memory.
 */
static int leechcore_read(struct source *source, uint64_t physical, void *into, size_t length)
{
	const struct leechcore *lc = source->state;
	uint64_t from = physical & ~(PAGE - 1);
	uint8_t pages[FIELD_BYTES_MAX + PAGE];
	size_t before = (size_t)(physical - from);
	size_t whole = (before + length + PAGE - 1) & ~(PAGE - 1);

	if (physical >= source->size || length > source->size - physical || whole > sizeof(pages))
		return -EFAULT;
	if (!lc->read(lc->handle, from, (uint32_t)whole, pages))
		return -EFAULT;
	memcpy(into, pages + before, length);
	return 0;
}

/* A device does not report that its target is gone: its reads fail, and rows say so. */
static int leechcore_check(struct source *source)
{
	(void)source;
	return 0;
}

const struct source_kind source_leechcore = {
	.name = "leechcore",
	.form = "leechcore:DEVICE",
	.open = leechcore_open,
	.read = leechcore_read,
	.check = leechcore_check,
	.close = leechcore_close,
};
