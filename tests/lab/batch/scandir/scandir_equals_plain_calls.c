// SPDX-License-Identifier: GPL-2.0-only
/*
 * One request of TL_NR_SCANDIR gives what getdents64 and statx give: every name once, in the same
 * order, with every field and error, in directories of many kinds. TL_PLACES names more of them,
 * and TL_IDMAPPED those that are also compared through an idmapped mount. A place that changes
 * while it is read is compared again.
 */
#include <limits.h>
#include <linux/mount.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include "fuse_server.h"
#include "scan.h"
#include "stranger.h"

#define TRIES 20
#define PLAIN_BYTES 32768

static struct ring ring;
static unsigned int compared;

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

/* What one comparison of a place has to say; it keeps the last difference. */
struct look {
	const char *path;
	char scanned[20000] __attribute__((aligned(8)));
	size_t bytes;			/* of the buffer */
	unsigned int mask, flags;
	char difference[400];
};

/*
 * Is the entry as the plain one? Where either is the `last` of its call, some file systems give it
 * another position than they do in the middle of one.
 */
static bool is_same(struct look *look, const struct plain_entry *plain, int fd,
		    const struct tl_scan_entry *entry, bool last)
{
	struct statx stat = { 0 };
	const char *field = NULL;
	long error = sys(SYS_statx, fd, plain->name,
			 SCAN_HOW | (look->flags & TL_SCAN_SYNC_TYPE), look->mask, &stat);

	if (strcmp(plain->name, tl_scan_name(entry)))
		field = "name";
	else if (plain->ino != entry->d_ino || plain->type != entry->type)
		field = "d_ino or type";
	else if (plain->off != entry->d_off && !last && !(look->flags & TL_SCAN_NO_DOTS))
		field = "d_off";
	else
		field = scan_differs(entry, error, &stat);
	if (field)
		snprintf(look->difference, sizeof(look->difference),
			 "%s: %s is %s (error %d, mode %o, mask %x, mount %llu), plain %s (error "
			 "%ld, mode %o, mask %x, mount %llu)", look->path, field,
			 tl_scan_name(entry), entry->error, entry->mode, entry->mask,
			 entry->mnt_id, plain->name, error, stat.stx_mode, stat.stx_mask,
			 stat.stx_mnt_id);
	return !field;
}

static bool differ(struct look *look, const char *what, long value)
{
	snprintf(look->difference, sizeof(look->difference), "%s: %s %ld", look->path, what,
		 value);
	return false;
}

/* Reads a place in both ways side by side. */
static bool compare_once(struct look *look)
{
	static char plain_entries[PLAIN_BYTES] __attribute__((aligned(8)));
	int by_plain = open_directory(look->path), by_scan = open_directory(look->path);
	const struct tl_scan_entry *entry = NULL;
	const char *end = NULL;
	bool same = true;
	long n, got = 0;

	if (by_plain < 0 || by_scan < 0)
		FAIL("%s: cannot be opened (%d)", look->path, by_plain);
	while (same && (n = sys(SYS_getdents64, by_plain, plain_entries, PLAIN_BYTES)) > 0) {
		for (char *at = plain_entries; same && at < plain_entries + n;) {
			struct plain_entry *plain = (void *)at;

			at += plain->size;
			if (look->flags & TL_SCAN_NO_DOTS && is_dots(plain->name))
				continue;
			if ((const char *)entry == end) {
				got = scan(&ring, by_scan, look->scanned, look->bytes, look->mask,
					   look->flags);
				if (got <= 0) {
					same = differ(look, "ends early with", got);
					break;
				}
				entry = (const void *)look->scanned;
				end = look->scanned + got;
			}
			scan_check_form(entry, (size_t)(end - (const char *)entry));
			scan_check_zeros(entry);
			same = is_same(look, plain, by_plain, entry,
				       (const char *)tl_scan_after(entry) == end ||
					       at == plain_entries + n);
			entry = tl_scan_after(entry);
			compared++;
		}
	}
	if (same && (const char *)entry != end)
		same = differ(look, "has more entries", end - (const char *)entry);
	got = same ? scan(&ring, by_scan, look->scanned, look->bytes, look->mask, look->flags) : 0;
	if (got)
		same = differ(look, "does not end but returns", got);
	sys(SYS_close, by_plain);
	sys(SYS_close, by_scan);
	return same;
}

static void compare_as(const char *path, size_t bytes, unsigned int mask, unsigned int flags)
{
	static struct look look;

	look.path = path;
	look.bytes = bytes;
	look.mask = mask;
	look.flags = flags;
	for (int i = 0; i < TRIES; i++)
		if (compare_once(&look))
			return;
	FAIL("%s (bytes %zu, mask %x, flags %x)", look.difference, bytes, mask, flags);
}

static void compare(const char *path)
{
	/* Names that are read for the first time, and then cached ones. */
	compare_as(path, 20000, SCAN_ALL, 0);
	compare_as(path, 1000, SCAN_ALL, 0);
	compare_as(path, 20000, STATX_TYPE | STATX_INO, TL_SCAN_NO_DOTS);
	compare_as(path, 5000, STATX_BASIC_STATS | 0x4000 | STATX_DIOALIGN, AT_STATX_DONT_SYNC);
	compare_as(path, 5000, SCAN_ALL, AT_STATX_FORCE_SYNC);
}

static void make_file(const char *path, int mode, size_t bytes)
{
	int fd = MUST(open(path, O_CREAT | O_WRONLY, mode));

	MUST(ftruncate(fd, (off_t)bytes));
	MUST(close(fd));
}

/* Every kind of file, long names, many names, mounts of and below it. */
static void fill(const char *place)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "socket" };
	char name[300];
	int fd = MUST(socket(AF_UNIX, SOCK_STREAM, 0));

	MUST(mkdir(place, 0755));
	MUST(chdir(place));
	MUST(bind(fd, (void *)&address, sizeof(address)));
	MUST(close(fd));
	MUST(symlink("nowhere", "broken-link"));
	MUST(symlink("/", "link"));
	MUST(mkfifo("fifo", 0600));
	MUST(mknod("char", S_IFCHR | 0600, makedev(1, 3)));
	MUST(mknod("block", S_IFBLK | 0600, makedev(1, 0)));
	make_file("setuid", 04755, 12345);
	MUST(chown("setuid", 12, 34));
	MUST(mkdir("closed", 0));
	MUST(mkdir("mounted", 0700));
	MUST(mkdir("bound", 0700));
	MUST(mount("none", "mounted", "tmpfs", 0, "mode=711"));
	MUST(mount("mounted", "bound", NULL, MS_BIND, NULL));
	make_file("bound-file", 0600, 1);
	MUST(mount("setuid", "bound-file", NULL, MS_BIND, NULL));
	for (int i = 0; i < 300; i++) {
		memset(name, 'a' + i % 26, sizeof(name));
		snprintf(name + i % 249, 7, "%d", i);
		make_file(name, 0640, (size_t)i);
	}
	MUST(chdir("/"));
}

/* A directory that may be read but not searched: each name has its own -EACCES. */
static void compare_unsearchable(void)
{
	MUST(mkdir("/unsearchable", 0755));
	make_file("/unsearchable/file", 0644, 1);
	MUST(mkdir("/unsearchable/below", 0755));
	MUST(chmod("/unsearchable", 0744));
	become_stranger();
	ring = ring_open(1);
	compare("/unsearchable");
	compare("/proc");
	compare("/filled");
}

/* All users are unknown in there. */
static void compare_in_user_namespace(void)
{
	MUST(unshare(CLONE_NEWUSER));
	ring = ring_open(1);
	compare("/filled");
}

/* A namespace in which the users from 0 on are those from 1000 on outside. */
static int open_user_namespace(void)
{
	static const char map[] = "0 1000 60000";
	char path[64];
	pid_t child = (pid_t)MUST(sys(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
	int fd;

	if (!child)
		for (;;)
			pause();
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/proc/%d/%cid_map", (int)child, "ug"[i]);
		fd = MUST(open(path, O_WRONLY));
		MUST(write(fd, map, sizeof(map) - 1));
		MUST(close(fd));
	}
	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)child);
	fd = MUST(open(path, O_RDONLY | O_CLOEXEC));
	MUST(kill(child, SIGKILL));
	MUST(waitpid(child, NULL, 0));
	return fd;
}

/* Mounts a place once more, with other owners. False: its file system does not allow it. */
static bool mount_idmapped(const char *place, const char *target)
{
	struct mount_attr attr = {
		.attr_set = MOUNT_ATTR_IDMAP,
		.userns_fd = (unsigned int)open_user_namespace(),
	};
	int tree = (int)MUST(sys(SYS_open_tree, AT_FDCWD, place, OPEN_TREE_CLONE));
	long error = sys(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr));

	MUST(close((int)attr.userns_fd));
	if (!error) {
		MUST(mkdir(target, 0755));
		MUST(sys(SYS_move_mount, tree, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH));
	}
	MUST(close(tree));
	if (error)
		CHECK_EQ(error, -EINVAL);
	return !error;
}

static void compare_idmapped(char *places)
{
	char target[100];

	for (char *place = strtok(places, ":"); place; place = strtok(NULL, ":")) {
		unsigned int before = compared;

		snprintf(target, sizeof(target), "/idmapped-%s", strrchr(place, '/') + 1);
		if (!mount_idmapped(place, target))
			continue;
		compare(target);
		printf("%s: %u comparisons\n", target, compared - before);
	}
}

/* The file system is told how many bytes of names have room, as by getdents64. */
static void compare_room(const char *place)
{
	char buffer[6000] __attribute__((aligned(8)));
	int fd = open_directory(place);
	uint32_t asked;

	MUST(sys(SYS_getdents64, fd, buffer, sizeof(buffer)));
	asked = *fuse_asked_bytes;
	*fuse_asked_bytes = 0;
	CHECK_WITHIN(scan(&ring, fd, buffer, sizeof(buffer), SCAN_ALL, 0), 1, sizeof(buffer));
	CHECK_EQ(*fuse_asked_bytes, asked);
	MUST(close(fd));
}

static void on_alarm(int signal)
{
	(void)signal;
}

/* A directory that gives "." without end: a signal ends the request, and no name is lost. */
static void interrupt_endless(const char *place)
{
	const struct sigaction action = { .sa_handler = on_alarm };
	const struct itimerval soon = { .it_value.tv_usec = 200000 };
	char buffer[1000] __attribute__((aligned(8)));
	int fd = open_directory(place);

	MUST(sigaction(SIGALRM, &action, NULL));
	MUST(setitimer(ITIMER_REAL, &soon, NULL));
	CHECK_EQ(scan(&ring, fd, buffer, sizeof(buffer), SCAN_ALL, TL_SCAN_NO_DOTS), -EINTR);
	CHECK_WITHIN(MUST(sys(SYS_lseek, fd, 0, SEEK_CUR)), 1, INT_MAX);
	MUST(close(fd));
}

static void compare_fuse(void)
{
	if (!fuse_mount("/fuse", 0))
		return;
	compare("/fuse");
	compare_room("/fuse");
	printf("/fuse: %u comparisons\n", compared);
	CHECK_EQ(fuse_mount("/stream", FUSE_STREAM), true);
	compare("/stream");
	CHECK_EQ(fuse_mount("/endless", FUSE_ENDLESS), true);
	interrupt_endless("/endless");
}

static void compare_removed(void)
{
	int fd;
	char buffer[1000];

	MUST(mkdir("/removed", 0755));
	fd = open_directory("/removed");
	MUST(rmdir("/removed"));
	CHECK_EQ(scan(&ring, fd, buffer, sizeof(buffer), SCAN_ALL, 0),
		 sys(SYS_getdents64, fd, buffer, sizeof(buffer)));
}

static void compare_all(char *places)
{
	for (char *place = strtok(places, ":"); place; place = strtok(NULL, ":")) {
		unsigned int before = compared;

		compare(place);
		printf("%s: %u comparisons\n", place, compared - before);
	}
}

int main(void)
{
	static char usual[] =
		"/filled:/filled/bound:/:/proc:/proc/self:/proc/self/fd:/proc/self/ns:"
		"/proc/self/task:/proc/sys/kernel:/proc/1:/sys:/sys/kernel:/dev:"
		"/proc/self/fdinfo:/proc/self/map_files:/proc/self/attr:/sys/module";

	static char idmapped[] = "/filled";

	ring = ring_open(1);
	if (batch_call(&ring, TL_NR_SCANDIR, -1) == -ENOSYS)
		SKIP("the module does not offer TL_NR_SCANDIR on this kernel");
	fill("/filled");
	compare_all(usual);
	compare_removed();
	compare_fuse();
	if (getenv("TL_PLACES"))
		compare_all(getenv("TL_PLACES"));
	compare_idmapped(getenv("TL_IDMAPPED") ?: idmapped);
	CHECK_EXITED(child_wait(child_start(compare_in_user_namespace)), 0);
	CHECK_EXITED(child_wait(child_start(compare_unsearchable)), 0);
	return 0;
}
