// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Runs trapless-sampler, which reads a machine's memory from outside. It owns the options, and the
 * measurement of intervals; stream.c samples. People use the program through `trapless peek`, which
 * makes plans from symbols.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "remote/answer.h"
#include "interval.h"
#include "limits.h"
#include "plan.h"
#include "sampling_loop.h"
#include "source.h"
#include "stream.h"

struct options {
	const char *source;
	const char *plan;
	const char *sizes;
	uint64_t address;
	uint64_t reads;
	int cpu;
	int answer;
};

static int fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int fail(int status, const char *format, ...)
{
	va_list arguments;

	fputs("trapless-sampler: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	return status;
}

static void usage(FILE *to)
{
	size_t i;

	fputs("usage: trapless-sampler --source SOURCE --plan FILE\n"
	      "       trapless-sampler --source SOURCE --interval-test BYTES[,BYTES...]\n"
	      "                        --address ADDRESS [--reads N] [--cpu N]\n"
	      "       trapless-sampler --source rdma:... --answer\n"
	      "\n"
	      "Reads memory while its owner runs. A plan says what is read, and when; '-' is\n"
	      "standard input. Rows go to standard output. With --answer, peek asks for places by\n"
	      "messages on standard input (wire.h). SOURCE is one of\n", to);
	for (i = 0; source_form(i); i++)
		fprintf(to, "  %s\n", source_form(i));
	fputs("Exit status: 0 ended as planned or asked, 1 failed, 2 wrong usage,\n"
	      "3 the target or its memory went away (what was recorded until then is whole).\n",
	      to);
}

static int parse_number(const char *text, uint64_t high, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 0);
	if (*text < '0' || *text > '9' || *end || errno || *value > high)
		return fail(-EINVAL, "'%s' is not a number up to %" PRIu64, text, high);
	return 0;
}

static int parse(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{ "source", required_argument, NULL, 's' },
		{ "plan", required_argument, NULL, 'p' },
		{ "interval-test", required_argument, NULL, 'i' },
		{ "address", required_argument, NULL, 'a' },
		{ "reads", required_argument, NULL, 'n' },
		{ "cpu", required_argument, NULL, 'c' },
		{ "answer", no_argument, NULL, 'w' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int option, status = 0;
	uint64_t cpu;

	while (!status && (option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
		if (option == 's') {
			options->source = optarg;
		} else if (option == 'p') {
			options->plan = optarg;
		} else if (option == 'i') {
			options->sizes = optarg;
		} else if (option == 'a') {
			status = parse_number(optarg, UINT64_MAX, &options->address);
		} else if (option == 'n') {
			status = parse_number(optarg, INTERVAL_READS_MAX, &options->reads);
		} else if (option == 'c') {
			status = parse_number(optarg, 65535, &cpu);
			options->cpu = (int)cpu;
		} else if (option == 'h') {
			usage(stdout);
			exit(0);
		} else if (option == 'w') {
			options->answer = 1;
		} else {
			return -EINVAL;
		}
	}
	if (!status && (optind < argc || !options->source || !options->reads ||
			!!options->plan + !!options->sizes + options->answer != 1))
		status = fail(-EINVAL, "want --source and one of --plan, --interval-test and "
				  "--answer (--help)");
	return status;
}

/* The text of a plan's file; NULL after a message. */
static char *read_plan(const char *path, size_t *length)
{
	FILE *file = strcmp(path, "-") ? fopen(path, "re") : stdin;
	char *text;

	if (!file) {
		fail(0, "%s: %m", path);
		return NULL;
	}
	text = malloc(PLAN_BYTES_MAX + 1);
	*length = text ? fread(text, 1, PLAN_BYTES_MAX, file) : 0;
	if (!text || ferror(file) || *length == PLAN_BYTES_MAX) {
		fail(0, "%s: cannot be read, or is longer than %u bytes", path,
			 PLAN_BYTES_MAX);
		free(text);
		text = NULL;
	} else {
		text[*length] = 0;
	}
	if (file != stdin)
		fclose(file);
	return text;
}

static int sample(const struct options *options, struct source *source)
{
	char message[STREAM_MESSAGE_BYTES];
	size_t length;
	char *text = read_plan(options->plan, &length);
	int status;

	if (!text)
		return STATUS_FAILED;
	if (isatty(STDOUT_FILENO)) {
		status = fail(STATUS_FAILED, "rows are not for a terminal: use a file or a pipe");
	} else {
		status = stream_samples(source, options->source, text, length, STDOUT_FILENO,
					message);
		fail(0, "%s", message);
	}
	free(text);
	return status;
}

static int test_intervals(const struct options *options, struct source *source)
{
	struct interval_test test = { .address = options->address,
				      .reads = (uint32_t)options->reads };
	char *sizes = strdup(options->sizes), *save = NULL, *size;
	char error[SOURCE_ERROR_BYTES];
	int status = options->cpu >= 0 ? run_pin(options->cpu) : 0;

	if (status)
		status = fail(STATUS_FAILED, "cannot run on CPU %d", options->cpu);
	for (size = strtok_r(sizes, ",", &save); size && !status && !run_stop;
	     size = strtok_r(NULL, ",", &save)) {
		uint64_t bytes;

		if (parse_number(size, FIELD_BYTES_MAX, &bytes) || bytes < 4) {
			status = fail(STATUS_USAGE, "a read has 4 to %d bytes",
					  FIELD_BYTES_MAX);
			break;
		}
		test.bytes = (uint32_t)bytes;
		if (interval_measure(&test, source, stdout, error))
			status = fail(STATUS_FAILED, "%s", error);
	}
	free(sizes);
	return status;
}

static int answer(struct source *source)
{
	if (!source->kind->describe)
		return fail(STATUS_USAGE, "--answer is for a source that takes a connection");
	if (answer_requests(source) == -ENODEV)
		return fail(STATUS_ENDED, "%s", source->kind->reason(source));
	return fail(STATUS_FAILED, "what was asked is no request for memory");
}

int main(int argc, char **argv)
{
	struct options options = { .reads = 1000000, .cpu = -1 };
	char error[SOURCE_ERROR_BYTES];
	struct source source;
	int status;

	if (parse(argc, argv, &options))
		return STATUS_USAGE;
	run_catch_signals();
	status = source_open(&source, options.source, error);
	if (status)
		return fail(status == -EINVAL ? STATUS_USAGE : STATUS_FAILED, "%s", error);
	status = options.answer ? answer(&source)
	       : options.plan ? sample(&options, &source)
			      : test_intervals(&options, &source);
	source_close(&source);
	return status;
}
