// SPDX-License-Identifier: GPL-2.0-only
/* The library with the module does what tests/unit/lib asserts of it with plain calls. */
#define LIB_FLAGS TL_MODULE
#include "../../unit/lib/psc_serves_in_parallel.c"
