// SPDX-License-Identifier: MIT
/*
 * Trees with the attributes of all entries: what TREEs take on the disk, as `du -s` prints it, but
 * that a file with several names counts for each. The library reads names and attributes together,
 * with the module by one request for many of them.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <trapless.h>

static int failed(const char *path, int error)
{
	fprintf(stderr, "usage: %s: %s\n", path, strerror(-error));
	return 1;
}

static int print_usage(const char *tree)
{
	const struct tl_walk_entry *entry;
	unsigned long long blocks = 0;
	struct tl_walk *walk;
	int status = 0, left;

	left = tl_walk_create(&walk, AT_FDCWD, tree, STATX_BLOCKS, 0, 0);
	if (left)
		return failed(tree, left);
	while ((left = tl_walk_next(walk, &entry)) == 1) {
		if (entry->error)
			status = failed(entry->path, entry->error);
		if (entry->kind == TL_WALK_ENTRY)
			blocks += entry->attributes->blocks;
	}
	tl_walk_destroy(walk);
	if (left)
		return failed(tree, left);
	printf("%llu\t%s\n", (blocks + 1) / 2, tree);
	return status;
}

int main(int argc, char **argv)
{
	int status = 0;

	if (argc == 1)
		return print_usage(".");
	for (int i = 1; i < argc; i++)
		status |= print_usage(argv[i]);
	return status;
}
