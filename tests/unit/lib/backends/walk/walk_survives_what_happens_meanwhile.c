// SPDX-License-Identifier: GPL-2.0-only
/*
 * While files come and go and signals arrive, a walk returns each name that stays exactly once.
 * It finds circles, keeps to its number of descriptors, leaves out what the caller prunes, never
 * goes on in a directory that was put in the place of another, says which directories it could not
 * read because the program has closed its descriptors, and goes on in the child of a fork.
 */
#include "backends/walk/tree.h"

#include <pthread.h>
#include <sys/resource.h>

#define STEADY 700u		/* names that stay */
#define WALKS 30

static char folder[32];

static int folder_fd(void)
{
	return MUST(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

/* ---- Files that come and go ---------------------------------------------------------------- */

static int changing;		/* atomic: the directory, or -1 to end */

static void *change(void *unused)
{
	char names[8][16];
	int fd;

	for (unsigned int i = 0; (fd = __atomic_load_n(&changing, __ATOMIC_ACQUIRE)) >= 0; i++) {
		char *name = names[i % 8];

		if (i >= 8)
			unlinkat(fd, name, 0);
		snprintf(name, sizeof(names[0]), "v%u", i);
		make_file(fd, name);
		if (i % 3 == 0) {
			char moved[32];

			snprintf(moved, sizeof(moved), "w%u", i);
			MUST(renameat(fd, name, fd, moved));
			MUST(unlinkat(fd, moved, 0));
		}
	}
	return unused;
}

static void steady_names_come_once(unsigned int flags)
{
	unsigned char seen[STEADY];
	const struct tl_walk_entry *entry;
	struct tl_walk *walk;
	pthread_t thread;
	int at = folder_fd(), result;

	changing = make_directory(at, "changing");
	for (unsigned int i = 0; i < STEADY; i++) {
		char name[16];

		snprintf(name, sizeof(name), "s%u", i);
		make_file(changing, name);
	}
	CHECK_EQ(pthread_create(&thread, NULL, change, NULL), 0);
	on_signal(SIGALRM, count_signal, 0);
	alarm_ms(1, 1);
	for (int round = 0; round < WALKS; round++) {
		memset(seen, 0, sizeof(seen));
		walk = walk_new(folder, flags, 0);
		while ((result = tl_walk_next(walk, &entry)) == 1) {
			if (entry->error)
				CHECK_EQ(entry->error, -ENOENT);
			if (entry->depth != 2 || entry->name[0] != 's')
				continue;
			CHECK_EQ(entry->error, 0);
			CHECK(S_ISREG(entry->attributes->mode));
			CHECK_EQ(seen[atoi(entry->name + 1)]++, 0);
		}
		CHECK_EQ(result, 0);
		CHECK_EQ(tl_walk_backend(walk), WALK_BACKEND);
		tl_walk_destroy(walk);
		for (unsigned int i = 0; i < STEADY; i++)
			CHECK_EQ(seen[i], 1);
	}
	alarm_ms(0, 0);
	result = __atomic_exchange_n(&changing, -1, __ATOMIC_ACQ_REL);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	close(result);
	tree_remove(at, "changing");
	close(at);
}

/* ---- Circles ------------------------------------------------------------------------------- */

static void links_in_circles_are_cycles(void)
{
	int at = folder_fd(), fd = make_directory(at, "a"), cycles = 0, dangling = 0, twice = 0;
	const struct tl_walk_entry *entry;
	struct tl_walk *walk;

	make_file(fd, "file");
	MUST(symlinkat("..", fd, "up"));
	MUST(symlinkat(".", fd, "here"));
	MUST(symlinkat("nowhere", fd, "dangling"));
	MUST(symlinkat("a", at, "b"));
	walk = walk_new(folder, TL_WALK_FOLLOW, 0);
	while (tl_walk_next(walk, &entry) == 1) {
		CHECK_EQ(entry->error, 0);
		cycles += entry->kind == TL_WALK_CYCLE;
		dangling += S_ISLNK(entry->attributes->mode);
		twice += !strcmp(entry->name, "file");
	}
	tl_walk_destroy(walk);
	CHECK_EQ(cycles, 4);		/* two of a, and two of b */
	CHECK_EQ(dangling, 2);
	CHECK_EQ(twice, 2);
	close(fd);
	tree_remove(at, "a");
	tree_remove(at, "b");
	close(at);
}

/* ---- Bounds -------------------------------------------------------------------------------- */

/* With as few as three descriptors, and where the process may have no more. */
static void descriptors_are_bounded(unsigned int flags)
{
	int at = folder_fd(), lowest, n = 0;
	const struct tl_walk_entry *entry;
	struct rlimit limit, few;
	struct tl_walk *walk;

	for (unsigned int i = 0; i < 10; i++) {
		char name[4] = { 'x', (char)('0' + i) };

		close(make_directory(at, name));
		n += 2;
	}
	make_deep(at, 60, 3);
	n += 60 * 2 + 1;
	n -= 10;
	MUST(getrlimit(RLIMIT_NOFILE, &limit));
	few = limit;
	for (int fewer = 0; fewer < 2; fewer++) {
		int found = 0;

		walk = walk_new(folder, flags, fewer ? 0 : 3);
		lowest = dup(at);
		close(lowest);
		few.rlim_cur = (rlim_t)lowest + 3;
		MUST(setrlimit(RLIMIT_NOFILE, &few));
		while (tl_walk_next(walk, &entry) == 1) {
			CHECK_EQ(entry->error, 0);
			CHECK(tl_walk_fd(walk) >= 0 || !entry->depth);
			found++;
		}
		MUST(setrlimit(RLIMIT_NOFILE, &limit));
		tl_walk_destroy(walk);
		CHECK_EQ(found, n);
	}
	close(at);
	tree_remove(AT_FDCWD, folder);
	MUST(mkdir(folder, 0755));
}

static void pruned_directories_are_not_entered(unsigned int flags)
{
	int at = folder_fd(), fd = make_directory(at, "a"), found = 0;
	const struct tl_walk_entry *entry;
	struct tl_walk *walk = NULL;

	make_file(fd, "file");
	close(make_directory(at, "b"));
	walk = walk_new(folder, flags, 0);
	while (tl_walk_next(walk, &entry) == 1) {
		CHECK(strcmp(entry->name, "file"));
		found++;
		if (entry->depth)
			tl_walk_skip(walk);
	}
	CHECK_EQ(found, 3);
	tl_walk_destroy(walk);
	CHECK_EQ(tl_walk_create(&walk, AT_FDCWD, folder, 0, 1u << 20, 0), -EINVAL);
	CHECK_EQ(tl_walk_create(&walk, AT_FDCWD, folder, 0, TL_WALK_BY_NAME | TL_WALK_BY_INODE, 0),
		 -EINVAL);
	CHECK_EQ(tl_walk_create(&walk, at, "none", 0, 0, 0), -ENOENT);
	close(fd);
	tree_remove(at, "a");
	tree_remove(at, "b");
	close(at);
}

/* ---- A directory that is moved ------------------------------------------------------------- */

static void make_families(int at, const char *const *parents)
{
	for (unsigned int i = 0; parents[i]; i++) {
		int fd = make_directory(at, parents[i]);

		make_deep(fd, 1, 1);
		close(fd);
	}
}

/* Its descriptor was given back; another directory has its path when it is needed again. */
static void another_directory_is_not_taken_for_the_first(void)
{
	static const char *const parents[] = { "a", "b", "c", "e", NULL };
	static const char *const again[] = { "a", NULL };
	int at = folder_fd(), stale = 0, unreadable = 0;
	const struct tl_walk_entry *entry;
	struct tl_walk *walk;

	make_families(at, parents);
	walk = walk_new(folder, TL_WALK_BY_NAME | TL_WALK_BREADTH_FIRST, 3);
	while (tl_walk_next(walk, &entry) == 1) {
		CHECK(entry->depth < 3 || !strncmp(entry->path + strlen(folder), "/a", 2) ||
		      tl_walk_fd(walk) >= 0);
		if (entry->depth == 2 && !strcmp(entry->path + strlen(folder), "/e/z")) {
			MUST(renameat(at, "a", at, "moved"));
			make_families(at, again);
		}
		unreadable += entry->kind == TL_WALK_UNREADABLE;
		stale += entry->error == -ESTALE;
	}
	CHECK_EQ(unreadable, 1);
	CHECK_EQ(stale, 1);
	tl_walk_destroy(walk);
	for (unsigned int i = 0; parents[i]; i++)
		tree_remove(at, parents[i]);
	tree_remove(at, "moved");
	close(at);
}

/* ---- Descriptors that the program closes --------------------------------------------------- */

/* As a daemon does. Another file may take the place of each, `kind`, if it is not NULL. */
static void close_all(const char *kind)
{
	int last = MUST(dup(0)), fd = last;

	MUST((int)sys(SYS_close_range, 3, ~0u, 0));
	while (kind && fd >= 0 && fd <= last)
		fd = MUST(open(kind, O_RDONLY));
}

/* What comes until the end, where the descriptors are lost behind the first `stop` entries. */
struct found {
	int entries, directories, links, files, errors;
};

static struct found walk_losing(unsigned int flags, unsigned int descriptors, int stop,
				const char *kind)
{
	struct tl_walk *walk = walk_new(folder, flags, descriptors);
	const struct tl_walk_entry *entry;
	struct found found = { 0 };
	int result;

	while ((result = tl_walk_next(walk, &entry)) == 1) {
		bool directory = S_ISDIR(entry->attributes->mode);

		if (entry->kind == TL_WALK_ENTRY) {
			found.entries++;
			found.directories += directory;
			found.files += S_ISREG(entry->attributes->mode);
			found.links += flags & TL_WALK_FOLLOW && S_ISLNK(entry->attributes->mode);
		}
		if (entry->error) {
			CHECK(kind || entry->error == -EBADF);
			CHECK_EQ(entry->kind == TL_WALK_UNREADABLE, directory);
			found.errors++;
		}
		if (found.entries == stop && entry->kind == TL_WALK_ENTRY)
			close_all(kind);
	}
	CHECK_EQ(result, 0);
	tl_walk_destroy(walk);
	return found;
}

static const char *const kinds[] = { NULL, "/dev/null", "/" };

/* Each directory of this tree has one file, and each link leads to one. */
static void every_directory_is_read_or_has_an_error(void)
{
	static const unsigned int flags[] = { 0, TL_WALK_BREADTH_FIRST, TL_WALK_FOLLOW };

	for (unsigned int i = 0; i < 9; i++) {
		struct found whole = walk_losing(flags[i % 3], 0, -1, NULL);
		const char *kind = kinds[i / 3];
		int most = 0;

		CHECK_EQ(whole.files, whole.directories);
		CHECK_EQ(whole.errors, 0);
		for (int stop = 1; stop <= whole.entries; stop++) {
			struct found found = walk_losing(flags[i % 3], stop % 2 * 3, stop, kind);

			/* In a file of the program nobody can tell that a link is lost. */
			if (!kind || !found.links)
				CHECK_EQ(found.files + found.errors,
					 found.directories + found.links);
			if (found.errors > most)
				most = found.errors;
		}
		CHECK(most >= 3);
	}
}

static void a_scan_that_lost_its_directory_has_an_error(void)
{
	const struct tl_scan_entry *entry;
	struct tl_scan *scan;
	int result, n = 0;

	CHECK_EQ(tl_scan_create(&scan, 0, LIB_FLAGS), 0);
	CHECK_EQ(tl_scan_open(scan, AT_FDCWD, folder), 0);
	while ((result = tl_scan_next(scan, &entry)) == 1)
		if (!n++)
			close_all(NULL);
	CHECK_EQ(result, -EBADF);
	CHECK(n < (int)MANY);
	tl_scan_destroy(scan);
}

static void lost_descriptors_are_told(void)
{
	static const char *const parents[] = { "a", "b", "c", NULL };
	int at = folder_fd();

	make_file(at, "z");
	make_families(at, parents);
	for (unsigned int i = 0; parents[i]; i++) {
		char name[8];

		snprintf(name, sizeof(name), "%s/d/z", parents[i]);
		make_file(at, name);
	}
	MUST(symlinkat("b/d", at, "link"));
	CHECK_EXITED(child_run(every_directory_is_read_or_has_an_error), 0);
	for (unsigned int i = 0; i < MANY; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%u", i);
		make_file(at, name);
	}
	CHECK_EXITED(child_run(a_scan_that_lost_its_directory_has_an_error), 0);
	close(at);
	tree_remove(AT_FDCWD, folder);
	MUST(mkdir(folder, 0755));
}

/* ---- Fork ---------------------------------------------------------------------------------- */

static void a_child_goes_on_with_the_walk(void)
{
	int at = folder_fd(), found = 0, status;
	const struct tl_walk_entry *entry;
	struct tl_walk *walk;
	pid_t child;

	make_deep(at, 5, 3);
	walk = walk_new(folder, 0, 0);
	CHECK_EQ(tl_walk_next(walk, &entry), 1);
	child = MUST(fork());
	while (tl_walk_next(walk, &entry) == 1 && !entry->error)
		found++;
	if (child)
		MUST(waitpid(child, &status, 0));
	if (!child)
		_exit(found != 10);
	CHECK_EQ(status, 0);
	CHECK_EQ(found, 10);
	tl_walk_destroy(walk);
	close(at);
	tree_remove(AT_FDCWD, folder);
	MUST(mkdir(folder, 0755));
}

int main(void)
{
	int before;

	strcpy(folder, "/tmp/walkXXXXXX");
	CHECK(mkdtemp(folder));
	before = open_descriptors();
	steady_names_come_once(0);
	steady_names_come_once(TL_WALK_BREADTH_FIRST);
	links_in_circles_are_cycles();
	descriptors_are_bounded(0);
	descriptors_are_bounded(TL_WALK_BREADTH_FIRST);
	pruned_directories_are_not_entered(0);
	pruned_directories_are_not_entered(TL_WALK_BREADTH_FIRST);
	another_directory_is_not_taken_for_the_first();
	lost_descriptors_are_told();
	a_child_goes_on_with_the_walk();
	CHECK_EQ(open_descriptors(), before);
	tree_remove(AT_FDCWD, folder);
	return 0;
}
