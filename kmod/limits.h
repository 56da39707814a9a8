/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Bounds of the module that no user sees, each with its unit. This header owns these bounds. The
 * binary interface owns those that users see (TL_ENTRIES_MAX, TL_SPIN_US_MAX).
 */
#ifndef TLK_LIMITS_H
#define TLK_LIMITS_H

/* Numbers in the dispatch tables, calls. A power of two above every kernel's highest number. */
#define TLK_NUMBERS 512u

/* The last of them. No kernel has it: in supervisor mode it stands for all numbers beyond. */
#define TLK_CALL_BEYOND (TLK_NUMBERS - 1)

/* The module's copy of the names that one TL_NR_SCANDIR reads, bytes. It holds the longest name. */
#define TLK_NAMES_BYTES 8192u

/* Switched processes that one TL_IOC_PROCESSES lists, processes. */
#define TLK_LISTED_MAX 4096u

/* Room for processes that are switched while TL_IOC_PROCESSES lists others, processes. */
#define TLK_LISTED_SPARE 16u

/* Places that events are recorded at, places. */
#define TLK_EVENT_PLACES_MAX 64u

/* Memory for the events of one CPU, KiB. The most is what every kernel gives in one piece. */
#define TLK_EVENT_KB_MIN 64u
#define TLK_EVENT_KB_MAX 4096u

/* Memory for the events of all CPUs, KiB. */
#define TLK_EVENT_TOTAL_KB_MAX (512u << 10)

#endif /* TLK_LIMITS_H */
