// SPDX-License-Identifier: MIT
/*
 * Prints what a tree takes on disk, or the names in it, by wrapped system calls.
 *
 * It prints the output of `du TREE`, byte for byte; with --find, that of `find TREE`. du makes a
 * crossing for every call; here fine-grained threads queue the calls of many directories and make
 * one crossing for all of them (wrapped-system-call, section 2.1). Without the module the same
 * program makes the same calls one by one. This file owns the options and the exit status.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "walk.h"

#define EXIT_USAGE 2

static const char usage_text[] =
	"usage: walk [OPTION]... [TREE]\n"
	"Print what each directory of TREE (default: .) takes on disk, in KiB, as du does.\n"
	"\n"
	"  -a, --all              a line for files, too\n"
	"  -s, --summarize        a line for TREE only\n"
	"  -x, --one-file-system  leave other file systems out\n"
	"      --find             print every name in TREE instead, as find does\n"
	"      --batch=N          wrap up to N calls in one crossing (default: 128)\n"
	"      --stats            say on standard error how many calls and crossings it took\n"
	"  -h, --help             this text\n"
	"\n"
	"TRAPLESS_BACKEND=plain makes the same calls one by one.\n"
	"Exit status: 0; 1 when something could not be read; 2 for wrong usage.\n";

noreturn void die(const char *what, int error)
{
	fprintf(stderr, "walk: %s%s%s\n", what, error ? ": " : "", error ? strerror(error) : "");
	exit(EXIT_FAILURE);
}

void *must(void *memory)
{
	if (!memory)
		die("memory exhausted", 0);
	return memory;
}

static noreturn void usage_error(const char *what)
{
	fprintf(stderr, "walk: %s\nTry 'walk --help'.\n", what);
	exit(EXIT_USAGE);
}

static uint32_t parse_batch(const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || n < 1 || n > TL_ENTRIES_MAX)
		usage_error("--batch must be 1 to 4096");
	return (uint32_t)n;
}

static struct options parse(int argc, char **argv)
{
	enum { FIND = 256, BATCH, STATS };
	static const struct option longs[] = {
		{ "all", no_argument, NULL, 'a' },
		{ "summarize", no_argument, NULL, 's' },
		{ "one-file-system", no_argument, NULL, 'x' },
		{ "find", no_argument, NULL, FIND },
		{ "batch", required_argument, NULL, BATCH },
		{ "stats", no_argument, NULL, STATS },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct options options = { .flush_at = FLUSH_AT };
	int option;

	while ((option = getopt_long(argc, argv, "asxh", longs, NULL)) != -1) {
		switch (option) {
		case 'a':
			options.all = true;
			break;
		case 's':
			options.summary = true;
			break;
		case 'x':
			options.one_device = true;
			break;
		case FIND:
			options.find = true;
			break;
		case BATCH:
			options.flush_at = parse_batch(optarg);
			break;
		case STATS:
			options.stats = true;
			break;
		case 'h':
			fputs(usage_text, stdout);
			exit(EXIT_SUCCESS);
		default:
			fputs("Try 'walk --help'.\n", stderr);
			exit(EXIT_USAGE);
		}
	}
	if (options.all + options.summary + options.find > 1)
		usage_error("-a, -s and --find exclude each other");
	if (argc - optind > 1)
		usage_error("more than one TREE");
	options.tree = optind < argc ? argv[optind] : ".";
	return options;
}

/* du drops all slashes at the end of its argument but one; find prints it as it is. */
static char *tree_name(const struct options *options)
{
	char *name = must(strdup(options->tree));
	size_t length = strlen(name);

	while (!options->find && length > 2 && name[length - 1] == '/' && name[length - 2] == '/')
		name[--length] = '\0';
	return name;
}

static void print_stats(const struct walk *walk)
{
	struct tl_sched_stats stats = { .size = sizeof(stats) };
	int error = tl_sched_get_stats(walk->sched, &stats);

	if (error)
		die("cannot read statistics", -error);
	fprintf(stderr, "walk: %llu calls, %llu crossings, %s\n",
		(unsigned long long)stats.calls, (unsigned long long)stats.crossings,
		tl_sched_backend(walk->sched) == TL_BACKEND_MODULE ? "module" : "plain");
}

static void walk_dir(struct walk *walk, const struct stat *stat)
{
	struct tl_sched_config config = {
		.size = sizeof(config),
		.flush_at = walk->options.flush_at,
		.entries = 1,
	};
	struct dir *root = dir_create(walk, NULL, stat);
	int error;

	while (config.entries < config.flush_at)
		config.entries *= 2;
	error = tl_sched_create(&walk->sched, &config);
	if (error)
		die("cannot create a scheduler", -error);
	walk->dev = stat->st_dev;
	root->name = walk->options.tree;
	handles_init(walk);
	print_tree(walk, root);
	visit(walk, root);
	if (walk->options.stats)
		print_stats(walk);
	visit_end(walk);
	tl_sched_destroy(walk->sched);
}

int main(int argc, char **argv)
{
	struct walk walk = { .options = parse(argc, argv) };
	char *name = tree_name(&walk.options);
	struct stat stat;

	walk.options.tree = name;
	print_init(&walk);
	if (lstat(name, &stat))
		print_error(&walk, errno);
	else if (S_ISDIR(stat.st_mode))
		walk_dir(&walk, &stat);
	else
		print_file(&walk, &stat);
	print_end(&walk);
	free(name);
	return walk.status;
}
