// SPDX-License-Identifier: GPL-2.0-or-later
/* Loads librdmacm, which brings libibverbs along, and finds their functions. */
#include "rdma_library.h"

#include <dlfcn.h>
#include <errno.h>

#include "source.h"

#define LIBRARY "librdmacm.so.1"

const struct library *library_load(char *error)
{
	static struct library library;
	void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!handle) {
		source_fail(error, -ENOENT, "RDMA takes rdma-core's libraries (%s); on Debian: "
			    "apt-get install librdmacm1 ibverbs-providers", dlerror());
		return NULL;
	}
#define FIND(name) \
	library.name = (__typeof__(library.name))dlsym(handle, #name); \
	if (!library.name) { \
		source_fail(error, -ENOENT, LIBRARY " has no " #name); \
		return NULL; \
	}
	LIBRARY_FUNCTIONS(FIND)
	return &library;
}
