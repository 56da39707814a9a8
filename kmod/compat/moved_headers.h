/* SPDX-License-Identifier: GPL-2.0-only */
/* Includes headers that newer kernels have split off from others. */
#ifndef TLK_COMPAT_MOVED_HEADERS_H
#define TLK_COMPAT_MOVED_HEADERS_H

#include <crypto/algapi.h>
#include <linux/kernel.h>
#if __has_include(<crypto/utils.h>)
#include <crypto/utils.h>
#endif
#if __has_include(<linux/hex.h>)
#include <linux/hex.h>
#endif
#if __has_include(<linux/vmcore_info.h>)
#include <linux/vmcore_info.h>
#else
#include <linux/crash_core.h>
#endif

#endif
