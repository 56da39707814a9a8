/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Counters count between begin and end and nothing else, user and kernel apart, and rows say what
 * they counted. The kernel's own events stand in for the processor's, which few test machines have;
 * where there are some, instructions are counted, too, and elsewhere the message names the model.
 */
#include "check.h"
#include "processor_counters.h"

#include <linux/perf_event.h>
#include <sys/mman.h>

#define PAGES 100

static const struct tl_counter_event software[] = {
	{ "faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS },
	{ "absent", PERF_TYPE_SOFTWARE, 9999 },
	{ "switches", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES },
	{ NULL, 0, 0 },
};

static void touch_pages(void)
{
	volatile char *fresh = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int page;

	CHECK(fresh != MAP_FAILED);
	CHECK_EQ(madvise((void *)fresh, PAGES * 4096, MADV_NOHUGEPAGE), 0);
	for (page = 0; page < PAGES; page++)
		fresh[page * 4096] = 1;
	CHECK_EQ(munmap((void *)fresh, PAGES * 4096), 0);
}

static void counted(struct tl_counters *counters)
{
	struct tl_counter_values values;
	char *text = NULL;
	size_t bytes;
	FILE *output = open_memstream(&text, &bytes);

	CHECK_EQ(counters->count, 2); /* one of the three is on no machine */
	CHECK_EQ(strcmp(counters->events[1].name, "switches"), 0);
	touch_pages();
	CHECK_EQ(tl_counters_begin(counters), 0);
	touch_pages();
	CHECK_EQ(tl_counters_end(counters, &values), 0);
	touch_pages();
	CHECK(values.counts[0][0] >= PAGES && values.counts[0][0] < PAGES + 20);
	CHECK_EQ(tl_counters_begin(counters), 0);
	CHECK_EQ(tl_counters_end(counters, &values), 0);
	CHECK(values.counts[0][0] < 20);
	values.counts[0][0] = 7;
	values.counts[1][0] = 8;
	values.counts[0][1] = values.counts[1][1] = 0;
	values.counted = 0.5;
	tl_counters_header(counters, output);
	tl_counters_row(counters, &values, 42, output);
	fclose(output);
	CHECK(strstr(text, "\"columns\": [\"user.faults\", \"user.switches\", \"kernel.faults\","));
	CHECK(strstr(text, "{\"region\": 42, \"number\": 0, \"counted\": 0.5000, "
			   "\"counts\": [7,0,8,0]}"));
	free(text);
}

/* What a command does from its exec on, and what its children do. */
static void command_counted(void)
{
	char error[TL_COUNTERS_ERROR_MAX] = "", word;
	struct tl_counter_values values;
	struct tl_counters counters;
	int go[2], status;
	pid_t child;

	CHECK_EQ(pipe(go), 0);
	child = fork();
	if (child == 0) {
		touch_pages();
		if (read(go[0], &word, 1) == 1)
			execlp("sh", "sh", "-c", "(exit 0); (exit 3); exit 5", NULL);
		_exit(1);
	}
	CHECK_EQ(tl_counters_open(&counters, child, true, software, error), 0);
	CHECK_EQ(write(go[1], "", 1), 1);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(WEXITSTATUS(status), 5);
	CHECK_EQ(tl_counters_read(&counters, &values), 0);
	CHECK(values.counts[0][0] > 20);
	tl_counters_close(&counters);
}

static void processor(void)
{
	char error[TL_COUNTERS_ERROR_MAX] = "";
	struct tl_counter_values values;
	struct tl_counters counters;

	if (tl_counters_open(&counters, 0, false, NULL, error)) {
		CHECK(strstr(error, "the model inside the emulator"));
		return;
	}
	CHECK_EQ(strcmp(counters.events[0].name, "instructions"), 0);
	CHECK_EQ(tl_counters_begin(&counters), 0);
	touch_pages();
	CHECK_EQ(tl_counters_end(&counters, &values), 0);
	CHECK(values.counts[0][0] > PAGES);
	CHECK(values.counts[1][0] > PAGES);
	tl_counters_close(&counters);
}

int main(void)
{
	char error[TL_COUNTERS_ERROR_MAX] = "";
	struct tl_counters counters;

	processor();
	if (tl_counters_open(&counters, 0, false, software, error)) {
		CHECK(strstr(error, "the model inside the emulator"));
		SKIP("perf_event_open counts nothing here: %s", error);
	}
	counted(&counters);
	tl_counters_close(&counters);
	command_counted();
	return 0;
}
