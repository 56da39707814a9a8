// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts events by perf_event_open(2). It owns the choice of events that stand for the model's on
 * each processor. Each event is opened twice, once for user mode and once for the kernel; where
 * that is more than the processor can count at once, the kernel lets them take turns.
 */
#include "processor_counters.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CACHE_READ_MISS(cache) ((cache) | PERF_COUNT_HW_CACHE_RESULT_MISS << 16)

/* On every processor. Misses of the TLB and the L1 cache are those of reads: few count writes. */
static const struct tl_counter_event common[] = {
	{ "instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS },
	{ "clocks", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES },
	{ "dtlb_misses", PERF_TYPE_HW_CACHE, CACHE_READ_MISS(PERF_COUNT_HW_CACHE_DTLB) },
	{ "l1d_misses", PERF_TYPE_HW_CACHE, CACHE_READ_MISS(PERF_COUNT_HW_CACHE_L1D) },
	{ NULL, 0, 0 },
};

/* L2_RQSTS.MISS (event 24, mask 3f, from Haswell on); the kernel's "cache misses" are the L3's. */
static const struct tl_counter_event intel[] = {
	{ "l2_misses", PERF_TYPE_RAW, 0x3f24 },
	{ "llc_misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES },
	{ NULL, 0, 0 },
};

/* From family 17h on the kernel's "cache misses" are the L2's; the L3 counts for no one thread. */
static const struct tl_counter_event amd[] = {
	{ "l2_misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES },
	{ NULL, 0, 0 },
};

const struct tl_counter_event tl_counters_software[] = {
	{ "page_faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS },
	{ "context_switches", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES },
	{ NULL, 0, 0 },
};

static const char *const syscall_ids[] = {
	"/sys/kernel/tracing/events/raw_syscalls/sys_enter/id",
	"/sys/kernel/debug/tracing/events/raw_syscalls/sys_enter/id",
};

/* The name of an x86 processor's vendor; false on other processors. */
static bool read_vendor(unsigned int name[3])
{
#ifdef __x86_64__
	unsigned int highest;

	return __get_cpuid(0, &highest, &name[0], &name[2], &name[1]);
#else
	(void)name;
	return false;
#endif
}

static const struct tl_counter_event *vendor_events(void)
{
	static const struct tl_counter_event none[] = { { NULL, 0, 0 } };
	unsigned int name[3];

	if (!read_vendor(name))
		return none;
	if (memcmp(name, "GenuineIntel", sizeof(name)) == 0)
		return intel;
	if (memcmp(name, "AuthenticAMD", sizeof(name)) == 0)
		return amd;
	return none;
}

static int open_one(const struct tl_counter_event *event, pid_t thread, bool children, bool kernel)
{
	struct perf_event_attr attributes = {
		.size = sizeof(attributes),
		.type = event->type,
		.config = event->config,
		.disabled = 1,
		.inherit = children,
		.enable_on_exec = children,
		.exclude_user = kernel,
		.exclude_kernel = !kernel,
		.exclude_hv = 1,
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
	};
	int file = syscall(SYS_perf_event_open, &attributes, thread, -1, -1, PERF_FLAG_FD_CLOEXEC);

	return file >= 0 ? file : -errno;
}

static int add(struct tl_counters *counters, const struct tl_counter_event *event, pid_t thread,
	       bool children)
{
	unsigned int at = counters->count;
	int user, kernel;

	if (at == TL_COUNTERS_MAX)
		return -E2BIG;
	user = open_one(event, thread, children, false);
	if (user < 0)
		return user;
	kernel = open_one(event, thread, children, true);
	if (kernel < 0) {
		close(user);
		return kernel;
	}
	counters->events[at] = *event;
	counters->files[0][at] = user;
	counters->files[1][at] = kernel;
	counters->count++;
	return 0;
}

/* Does the processor lack this event? Any other result is an error. */
static bool absent(int result)
{
	return result == -ENOENT || result == -ENODEV || result == -EOPNOTSUPP || result == -EINVAL;
}

static int add_all(struct tl_counters *counters, const struct tl_counter_event *event,
		   pid_t thread, bool children)
{
	for (; event->name; event++) {
		int result = add(counters, event, thread, children);

		if (result && !absent(result))
			return result;
	}
	return 0;
}

/* Adds entries into system calls, by a tracepoint, where its number may be read. */
static int add_syscalls(struct tl_counters *counters, pid_t thread, bool children)
{
	struct tl_counter_event events[2] = { { "syscalls", PERF_TYPE_TRACEPOINT, 0 } };
	FILE *file = NULL;
	bool is_read;
	size_t i;

	for (i = 0; i < sizeof(syscall_ids) / sizeof(syscall_ids[0]) && !file; i++)
		file = fopen(syscall_ids[i], "re");
	if (!file)
		return 0;
	is_read = fscanf(file, "%" SCNu64, &events[0].config) == 1;
	fclose(file);
	return is_read ? add_all(counters, events, thread, children) : 0;
}

int tl_counters_open(struct tl_counters *counters, pid_t thread, bool children,
		     const struct tl_counter_event *events, char error[TL_COUNTERS_ERROR_MAX])
{
	int result;

	memset(counters, 0, sizeof(*counters));
	result = add_all(counters, events ? events : common, thread, children);
	if (result == 0 && counters->count && !events)
		result = add_all(counters, vendor_events(), thread, children) ?:
			 add_all(counters, tl_counters_software, thread, children);
	if (result == 0 && counters->count && (!events || events == tl_counters_software))
		result = add_syscalls(counters, thread, children);
	if (result == 0 && counters->count == 0)
		result = -ENOENT;
	if (result == 0)
		return 0;
	tl_counters_close(counters);
	snprintf(error, TL_COUNTERS_ERROR_MAX, "%s%s; %s",
		 result == -ENOENT || result == -EACCES || result == -EPERM ? "" :
				     "perf_event_open: ",
		 result == -ENOENT ? "the kernel offers no performance counters here" :
		 result == -EACCES || result == -EPERM ?
				     "counting the kernel is not allowed here: it takes root, or "
				     "sysctl kernel.perf_event_paranoid=1" :
				     strerror(-result),
		 "the model inside the emulator gives the same events on any machine "
		 "(docs/model.md)");
	return result;
}

void tl_counters_close(struct tl_counters *counters)
{
	while (counters->count > 0) {
		counters->count--;
		close(counters->files[0][counters->count]);
		close(counters->files[1][counters->count]);
	}
}

static int control(struct tl_counters *counters, unsigned long request)
{
	unsigned int mode, at;

	for (at = 0; at < counters->count; at++)
		for (mode = 0; mode < 2; mode++)
			if (ioctl(counters->files[mode][at], request, 0))
				return -errno;
	return 0;
}

int tl_counters_begin(struct tl_counters *counters)
{
	return control(counters, PERF_EVENT_IOC_RESET) ?: control(counters, PERF_EVENT_IOC_ENABLE);
}

int tl_counters_end(struct tl_counters *counters, struct tl_counter_values *values)
{
	return control(counters, PERF_EVENT_IOC_DISABLE) ?: tl_counters_read(counters, values);
}

int tl_counters_read(struct tl_counters *counters, struct tl_counter_values *values)
{
	unsigned int mode, at;

	values->counted = 1;
	for (at = 0; at < counters->count; at++) {
		for (mode = 0; mode < 2; mode++) {
			struct {
				uint64_t value, enabled, running;
			} now;
			double share;

			if (read(counters->files[mode][at], &now, sizeof(now)) != sizeof(now))
				return -EIO;
			share = now.enabled ? (double)now.running / now.enabled : 1;
			if (share < values->counted)
				values->counted = share;
			values->counts[mode][at] =
				share > 0 && share < 1 ? (uint64_t)(now.value / share + 0.5) :
							 now.value;
		}
	}
	return 0;
}

void tl_counters_header(const struct tl_counters *counters, FILE *output)
{
	static const char *const modes[2] = { "user", "kernel" };
	unsigned int mode, at;

	fputs("{\"format\": \"trapless-counters\", \"version\": 1, \"columns\": [", output);
	for (mode = 0; mode < 2; mode++)
		for (at = 0; at < counters->count; at++)
			fprintf(output, "%s\"%s.%s\"", mode || at ? ", " : "", modes[mode],
				counters->events[at].name);
	fputs("]}\n", output);
	fflush(output);
}

void tl_counters_row(struct tl_counters *counters, const struct tl_counter_values *values,
		     uint64_t label, FILE *output)
{
	unsigned int mode, at;

	fprintf(output, "{\"region\": %" PRIu64 ", \"number\": %" PRIu64 ", \"counted\": %.4f, ",
		label, counters->rows++, values->counted);
	fputs("\"counts\": [", output);
	for (mode = 0; mode < 2; mode++)
		for (at = 0; at < counters->count; at++)
			fprintf(output, "%s%" PRIu64, mode || at ? "," : "",
				values->counts[mode][at]);
	fputs("]}\n", output);
	fflush(output);
}
