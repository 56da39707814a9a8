// SPDX-License-Identifier: GPL-2.0-only
/*
 * The counts of a walk, on a tree so small that each call is known: a directory of three files and
 * an empty directory. Older and newer programs have another size of the counts.
 */
#include "tree.h"

#include <stddef.h>

enum { DIRECTORIES = 2, ENTRIES = 5 };

static void check_counts(const struct tl_walk_stats *stats)
{
	/* The root's attributes; openat, fstat and close of a directory. The root is still open. */
	uint64_t calls = 1 + 3 * DIRECTORIES - 1;

	CHECK_EQ(stats->size, sizeof(*stats));
	CHECK_EQ(stats->entries, ENTRIES);
	CHECK_EQ(stats->directories, DIRECTORIES);
	if (WALK_BACKEND == TL_BACKEND_MODULE) {
		CHECK_EQ(stats->requests, 2 * DIRECTORIES);
		CHECK_EQ(stats->calls, calls);
		CHECK_EQ(stats->crossings, calls + DIRECTORIES);
		return;
	}
	/* Two getdents64 of a directory, and a statx of each entry but for the root. */
	calls += 2 * DIRECTORIES + ENTRIES - 1;
	CHECK_EQ(stats->requests, 0);
	CHECK_EQ(stats->calls, calls);
	CHECK_EQ(stats->crossings, calls);
}

static void other_sizes(const struct tl_walk *walk)
{
	struct {
		struct tl_walk_stats stats;
		uint64_t behind;
	} newer = { .stats.size = sizeof(newer), .behind = 7 };
	struct tl_walk_stats older = { .size = offsetof(struct tl_walk_stats, requests) };

	CHECK_EQ(tl_walk_get_stats(walk, &newer.stats), 0);
	check_counts(&newer.stats);
	CHECK_EQ(newer.behind, 7);
	older.requests = 7;
	CHECK_EQ(tl_walk_get_stats(walk, &older), 0);
	CHECK_EQ(older.directories, DIRECTORIES);
	CHECK_EQ(older.requests, 7);
	older.size = 0;
	CHECK_EQ(tl_walk_get_stats(walk, &older), -EINVAL);
}

int main(void)
{
	struct tl_walk_stats stats = { .size = sizeof(stats) };
	const struct tl_walk_entry *entry;
	char folder[] = "/tmp/walkXXXXXX";
	struct tl_walk *walk;
	int at;

	CHECK(mkdtemp(folder));
	at = MUST(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	make_file(at, "a");
	make_file(at, "b");
	make_file(at, "c");
	close(make_directory(at, "empty"));
	close(at);
	walk = walk_new(folder, 0, 0);
	CHECK_EQ(tl_walk_get_stats(walk, &stats), 0);
	CHECK_EQ(stats.entries, 0);
	while (tl_walk_next(walk, &entry) == 1)
		;
	CHECK_EQ(tl_walk_get_stats(walk, &stats), 0);
	check_counts(&stats);
	other_sizes(walk);
	tl_walk_destroy(walk);
	tree_remove(AT_FDCWD, folder);
	return 0;
}
