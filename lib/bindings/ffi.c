// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The inline functions of trapless.h as symbols of libtrapless-ffi, for languages that cannot
 * compile C. trapless.h owns the functions; here they are compiled, and nothing else is.
 */
#define TL_INLINE
#include <trapless.h>
