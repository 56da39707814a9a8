// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * A scheduler from what a program asks for to its end, and its statistics. It runs nothing: that is
 * the business of sched.c.
 */
#include "../enter.h"
#include "state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#define FLUSH_AT_DEFAULT 32u	/* calls; the paper's N */
#define CONFIG_BYTES_FIRST 24u	/* of struct tl_sched_config in the first release */
#define CONFIG_BYTES_MAX 4096u	/* of any release */

_Static_assert(offsetof(struct tl_sched, head) == 0 && sizeof(struct tl_sched_head) == 24 &&
	       offsetof(struct tl_sched_head, awaited) == 16 &&
	       sizeof(struct tl_completion) == 16,
	       "programs have the inline functions compiled in");

_Static_assert(sizeof(struct tl_sched_config) >= CONFIG_BYTES_FIRST &&
	       offsetof(struct tl_sched_config, deadline_ns) == 16 &&
	       offsetof(struct tl_sched_stats, flushes_deadline) == 48,
	       "structures of the binary interface grow at their end only");

/*
 * Copies the structure as the program knows it. A release may add fields at its end, where 0 means
 * what was before. An older program therefore gives fewer fields, and a newer program may give more
 * if they are 0.
 */
static int config_copy(struct tl_sched_config *out, const struct tl_sched_config *in)
{
	const char *bytes = (const char *)in;

	if (in->size < CONFIG_BYTES_FIRST)
		return -EINVAL;
	if (in->size > CONFIG_BYTES_MAX)
		return -E2BIG;
	for (size_t i = sizeof(*out); i < in->size; i++)
		if (bytes[i])
			return -E2BIG;
	memcpy(out, in, in->size < sizeof(*out) ? in->size : sizeof(*out));
	return 0;
}

static int config_read(struct tl_sched_config *out, const struct tl_sched_config *in)
{
	uint32_t most = TL_ENTRIES_MAX;
	int result;

	memset(out, 0, sizeof(*out));
	if (in) {
		result = config_copy(out, in);
		if (result)
			return result;
	}
	if (!out->flush_at)
		out->flush_at = FLUSH_AT_DEFAULT;
	if (out->flags & TL_UNORDERED)
		most = TL_UNORDERED_ENTRIES_MAX;
	if (out->flush_at > most || out->entries > most)
		return -EINVAL;
	if (!out->entries) {
		/* Twice N: a thread may queue more than N calls before the scheduler flushes. */
		out->entries = 2;
		while (out->entries < 2 * out->flush_at && out->entries < most)
			out->entries *= 2;
	}
	out->entries = tl_entries_rounded(out->entries, most);
	return out->flush_at > out->entries ? -EINVAL : 0;
}

int tl_sched_create(struct tl_sched **out, const struct tl_sched_config *config)
{
	struct tl_sched_config own;
	struct tl_sched *sched;
	int result;

	result = config_read(&own, config);
	if (result)
		return result;
	sched = tl_heap_resize(NULL, 1, sizeof(*sched));
	if (!sched)
		return -ENOMEM;
	memset(sched, 0, sizeof(*sched));
	sched->flush_at = own.flush_at;
	sched->deadline_ns = own.deadline_ns;
	sched->unordered = own.flags & TL_UNORDERED;
	sched->threads.ready_end = &sched->threads.ready;
	tl_events_init(&sched->events);
	sched->head.completions =
		tl_heap_resize(NULL, own.entries, sizeof(*sched->head.completions));
	if (!sched->head.completions) {
		result = -ENOMEM;
		goto free_sched;
	}
	result = tl_batch_create(&sched->head.batch, own.entries, own.flags);
	if (result)
		goto free_completions;
	*out = sched;
	return 0;

free_completions:
	free(sched->head.completions);
free_sched:
	free(sched);
	return result;
}

void tl_sched_destroy(struct tl_sched *sched)
{
	if (!sched)
		return;
	tl_threads_free(&sched->threads);
	tl_events_free(&sched->events);
	tl_batch_destroy(sched->head.batch);
	free(sched->head.completions);
	free(sched);
}

enum tl_backend tl_sched_backend(const struct tl_sched *sched)
{
	return tl_batch_backend(sched->head.batch);
}

/* Returns how many calls that the scheduler has queued itself are not complete. */
static uint64_t own_calls_queued(const struct tl_sched *sched)
{
	const struct tl_batch *batch = sched->head.batch;
	const struct tl_request *request = sched->unordered ? batch->requests : batch->first;
	uint64_t epoll_fd = (uint64_t)sched->events.set.fd, n = 0;

	for (; request != batch->next; request++)
		n += (request->nr == SYS_epoll_ctl || request->nr == SYS_EPOLL_WAIT) &&
		     request->args[0] == epoll_fd &&
		     (!sched->unordered || request->state == TL_SUBMITTED);
	return n;
}

int tl_sched_get_stats(const struct tl_sched *sched, struct tl_sched_stats *out)
{
	struct tl_stats counts = { .size = sizeof(counts) };
	struct tl_sched_stats own = sched->stats;
	uint32_t size = out->size;
	int result;

	if (size < sizeof(out->size))
		return -EINVAL;
	result = tl_batch_get_stats(sched->head.batch, &counts);
	if (result < 0)
		return result;
	own.calls -= sched->own_calls - own_calls_queued(sched);
	own.crossings = counts.crossings + sched->own_crossings;
	own.size = size < sizeof(own) ? size : sizeof(own);
	memcpy(out, &own, own.size);
	return 0;
}
