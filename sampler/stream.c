// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Samples by the text of a plan. It owns the head of the stream, the order in which the parts of a
 * run are set up and taken down, and the sentence that says how it went.
 */
#include "stream.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "output.h"
#include "plan.h"
#include "sampling_loop.h"

static int say(char *message, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int say(char *message, int status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, STREAM_MESSAGE_BYTES, format, arguments);
	va_end(arguments);
	return status;
}

/* The head of the stream: the plan, and what a reader needs beside it. */
static char *head_text(const char *plan_text, const char *source_text, const struct plan *plan)
{
	char *text;
	int length = asprintf(&text, "%s\n# source %s\n# row-bytes %u\n# monotonic-ns %" PRIu64
			      "\n# realtime-ns %" PRIu64 "\n", plan_text, source_text,
			      run_row_bytes(plan), now_ns(), clock_read(CLOCK_REALTIME));

	return length < 0 ? NULL : text;
}

static int report(const struct source *source, const struct stream_end *end, char *message)
{
	static const char *const endings[ENDINGS] = {
		[ENDING_DURATION] = "the planned time is over",
		[ENDING_SIGNAL] = "asked to end",
		[ENDING_TARGET] = "the target has ended",
		[ENDING_SOURCE] = "the memory went away: its file was cut",
		[ENDING_OUTPUT] = "the output takes no more",
	};
	const char *why = source->kind->reason && end->ending == ENDING_SOURCE ?
				  source->kind->reason(source) : endings[end->ending];
	bool planned = end->ending == ENDING_DURATION || end->ending == ENDING_SIGNAL;

	return say(message, planned ? 0 : STATUS_ENDED,
		   "%s; %" PRIu64 " rows, of %" PRIu64 " slots %" PRIu64 " lost (%" PRIu64
		   " of them as the output was slow); late %" PRIu64 ", torn %" PRIu64 ", frozen %"
		   PRIu64 ", absent %" PRIu64, why, end->rows, end->slots,
		   end->lost, end->unwritten, end->late, end->torn, end->frozen, end->absent);
}

int stream_samples(struct source *source, const char *source_text, const char *plan_text,
		   size_t plan_bytes, int descriptor, char *message)
{
	static struct plan plan;
	struct stream_end end = { .magic = END_MAGIC };
	char error[SOURCE_ERROR_BYTES];
	struct output *output;
	char *head;
	int status;

	if (plan_parse(&plan, plan_text, plan_bytes, error))
		return say(message, STATUS_FAILED, "%s", error);
	head = head_text(plan_text, source_text, &plan);
	status = head ? output_create(&output, descriptor, head, run_row_bytes(&plan),
				      plan.interval_ns)
		      : -ENOMEM;
	free(head);
	if (status)
		return say(message, STATUS_FAILED, "the output cannot be begun: %s",
			   strerror(-status));
	status = run_plan(&plan, source, output, &end, error);
	if (status) {
		output_destroy(output, NULL);
		return say(message, STATUS_FAILED, "%s", error);
	}
	status = output_destroy(output, &end);
	if (status)
		return say(message, STATUS_FAILED, "the output failed: %s", strerror(-status));
	return report(source, &end, message);
}
