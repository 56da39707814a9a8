/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declares sampling by the text of a plan: from the text to the last byte of the stream of row.h.
 */
#ifndef SAMPLER_STREAM_H
#define SAMPLER_STREAM_H

#include <stddef.h>

#include "source.h"

#define STATUS_FAILED 1
#define STATUS_USAGE 2
#define STATUS_ENDED 3	/* the target or its memory went away; all rows are whole */

#define STREAM_MESSAGE_BYTES 1024

/*
 * Samples `source`, which was opened by `source_text`, until the plan's end or a signal. The rows
 * go to `descriptor`. Returns an exit status of the sampler; `message` says how it went.
 */
int stream_samples(struct source *source, const char *source_text, const char *plan_text,
		   size_t plan_bytes, int descriptor, char *message);

#endif
