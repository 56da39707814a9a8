/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Adds one to an event counter (eventfd). This header owns the function's two forms: upstream
 * commit 3652117f8548 (6.8) has dropped the number that is added.
 */
#ifndef TLK_COMPAT_EVENT_H
#define TLK_COMPAT_EVENT_H

#include <linux/eventfd.h>

static inline void tlk_event_signal(struct eventfd_ctx *event)
{
#ifdef TLK_HAS_EVENTFD_NUMBER
	eventfd_signal(event, 1);
#else
	eventfd_signal(event);
#endif
}

#endif /* TLK_COMPAT_EVENT_H */
