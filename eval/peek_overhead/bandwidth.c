// SPDX-License-Identifier: GPL-2.0-only
/*
 * The observed side of Fig. 6: reads or writes so many bytes in total over a region, again and
 * again, and says what time it took, while an observer (sweep.c) reads the same region, another
 * one, or nothing. It owns the order of all runs and announces each: an odd phase lasts until the
 * observer has begun, the even one after it is the run.
 *
 * In a guest the region is a huge page, so that it lies in one piece in physical memory. On this
 * machine it is a shared file, which an observer maps as it maps the memory of a guest.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "announce.h"
#include "workload_clock.h"
#include "measure.h"
#include "settings.h"

#define HUGE_PAGES "/proc/sys/vm/nr_hugepages"
#define HUGE_BYTES (2u << 20)
#define TOTAL_MB_MAX 4096u
#define REPEATS_MAX 1000u

_Static_assert(HUGE_BYTES == REGIONS_BYTES, "both regions are one huge page");

static const char *const reads_names[READS] = {
	[READS_NONE] = "none",
	[READS_OTHER] = "other",
	[READS_PACED] = "paced",
	[READS_SAME] = "same",
};

struct options {
	const char *file;		/* NULL: in a guest */
	unsigned int sizes[MEASURE_LIST_MAX], size_count;
	unsigned int repeats, total_mb, cpu;
};

struct place {
	struct announcement *announcement;
	uint64_t *regions;
};

static uint64_t sum_of_reads;	/* used, so that no read is left out */

/* The processor's time of this program: others may run on the same processor, too. */
static uint64_t used_ns(void)
{
	return clock_read(CLOCK_PROCESS_CPUTIME_ID);
}

static void read_all(uint64_t *region, unsigned int words, unsigned int passes)
{
	uint64_t sum = 0;

	for (unsigned int pass = 0; pass < passes; pass++)
		for (unsigned int at = 0; at < words; at++)
			sum += *(volatile uint64_t *)&region[at];
	sum_of_reads += sum;
}

static void write_all(uint64_t *region, unsigned int words, unsigned int passes)
{
	for (unsigned int pass = 0; pass < passes; pass++)
		for (unsigned int at = 0; at < words; at++)
			*(volatile uint64_t *)&region[at] = pass;
}

static const struct {
	const char *name;
	void (*run)(uint64_t *region, unsigned int words, unsigned int passes);
} accesses[] = {
	{ "read", read_all },
	{ "write", write_all },
};

#define ACCESSES (sizeof(accesses) / sizeof(accesses[0]))

static void *map(size_t bytes, int flags, int descriptor, off_t offset)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_POPULATE, descriptor,
			    offset);

	if (memory == MAP_FAILED)
		measure_fail("%zu bytes cannot be mapped: %s", bytes, strerror(errno));
	return memory;
}

/* Two huge pages: one for both regions, one for the announcement. */
static struct place in_guest(void)
{
	FILE *file = fopen(HUGE_PAGES, "we");
	struct place place;
	uint8_t *memory;

	if (!file || fputs("2\n", file) < 0 || fclose(file))
		measure_fail("no huge pages: %s: %s", HUGE_PAGES, strerror(errno));
	memory = map(2 * HUGE_BYTES, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	memset(memory, 0, 2 * HUGE_BYTES);
	place.announcement = (void *)(memory + HUGE_BYTES);
	place.regions = (void *)memory;
	announce_begin(place.announcement, announce_physical(place.announcement),
		       announce_physical(place.regions));
	return place;
}

/* The file is an address space of its own: addresses are offsets in it. */
static struct place in_file(const char *name)
{
	int descriptor = open(name, O_RDWR | O_CLOEXEC);
	struct place place;

	if (descriptor < 0 || ftruncate(descriptor, 2 * REGIONS_BYTES))
		measure_fail("%s: %s", name, strerror(errno));
	place.regions = map(REGIONS_BYTES, MAP_SHARED, descriptor, REGIONS_BYTES);
	place.announcement = map(ANNOUNCE_PAGE, MAP_SHARED, descriptor, 0);
	close(descriptor);
	memset(place.regions, 0, REGIONS_BYTES);
	printf("{\"announcement\": %" PRIuPTR ", \"regions\": %" PRIuPTR ", \"pid\": %d}\n",
	       (uintptr_t)place.announcement, (uintptr_t)place.regions, getpid());
	fflush(stdout);
	announce_begin(place.announcement, 0, REGIONS_BYTES);
	return place;
}

static void run(const struct options *options, struct place *place, unsigned int access,
		unsigned int bytes, enum reads reads, unsigned int repeat)
{
	const unsigned int words = bytes / sizeof(*place->regions);
	const unsigned int passes = (unsigned int)(((uint64_t)options->total_mb << 20) / bytes);
	uint64_t begin, ns, phase;

	announce_next(place->announcement, settings_pack(reads, bytes));
	announce_await();
	accesses[access].run(place->regions, words, 1);	/* as cold, or warm, as all others */
	announce_next(place->announcement, settings_pack(reads, bytes));
	phase = place->announcement->phase;
	begin = used_ns();
	accesses[access].run(place->regions, words, passes);
	ns = used_ns() - begin;
	printf("{\"phase\": %" PRIu64 ", \"access\": \"%s\", \"bytes\": %u, \"reads\": \"%s\", "
	       "\"repeat\": %u, \"total\": %" PRIu64 ", \"ns\": %" PRIu64 "}\n", phase,
	       accesses[access].name, bytes, reads_names[reads], repeat,
	       (uint64_t)words * sizeof(*place->regions) * passes, ns);
}

static struct options parse(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "file", required_argument, NULL, 'f' },
		{ "sizes", required_argument, NULL, 'n' },
		{ "repeats", required_argument, NULL, 'r' },
		{ "total-mb", required_argument, NULL, 't' },
		{ "cpu", required_argument, NULL, 'c' },
		{ 0 },
	};
	struct options options = { .repeats = 1, .total_mb = 256 };
	int option;

	while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (option == 'f')
			options.file = optarg;
		else if (option == 'n')
			options.size_count = measure_parse_numbers(optarg, options.sizes,
								   REGION_BYTES_MAX);
		else if (option == 'r')
			options.repeats = (unsigned int)measure_parse_number("--repeats", optarg,
									     REPEATS_MAX);
		else if (option == 't')
			options.total_mb = (unsigned int)measure_parse_number("--total-mb", optarg,
									      TOTAL_MB_MAX);
		else if (option == 'c')
			options.cpu = (unsigned int)measure_parse_number("--cpu", optarg, 65535);
		else
			measure_fail("usage: peek-bandwidth --sizes LIST [--repeats N] "
				     "[--total-mb N] [--cpu N] [--file FILE]");
	}
	for (unsigned int i = 0; i < options.size_count; i++)
		if (options.sizes[i] % PIECE_BYTES)
			measure_fail("a region of %u bytes is no multiple of %u", options.sizes[i],
				     PIECE_BYTES);
	if (!options.size_count || !options.total_mb)
		measure_fail("no sizes, or nothing to read");
	return options;
}

int main(int argc, char **argv)
{
	struct options options = parse(argc, argv);
	unsigned int order[READS * ACCESSES];
	struct place place;

	measure_pin(options.cpu);
	measure_seed(6);
	place = options.file ? in_file(options.file) : in_guest();
	for (unsigned int repeat = 0; repeat < options.repeats; repeat++) {
		for (unsigned int i = 0; i < options.size_count; i++) {
			for (unsigned int j = 0; j < READS * ACCESSES; j++)
				order[j] = j;
			measure_shuffle(order, READS * ACCESSES);
			for (unsigned int j = 0; j < READS * ACCESSES; j++)
				run(&options, &place, order[j] / READS, options.sizes[i],
				    order[j] % READS, repeat);
			measure_progress(repeat * options.size_count + i + 1,
					 options.repeats * options.size_count);
		}
	}
	announce_next(place.announcement, ANNOUNCE_OVER);
	printf("{\"check\": \"all words were read and written\", \"made\": %" PRIu64 "}\n",
	       sum_of_reads);
	printf("{\"complete\": true}\n");
	fflush(stdout);
	announce_await();	/* memory stays until the end was seen */
	return 0;
}
