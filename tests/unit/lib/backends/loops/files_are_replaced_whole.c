// SPDX-License-Identifier: GPL-2.0-only
/*
 * A replacement of a file: whichever call of it fails, the path has the old content, or the new one
 * if nothing but the folder's fsync(2) failed, and no temporary file is left. A listener of seccomp
 * answers in the place of a file system that reports errors at close(2) or fsync(2).
 */
#include "lib_check.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char folder[] = "/tmp/replaced.XXXXXX";
static char path[300];
static int listener;
static int limit;	/* of file sizes, in the part of a write that is made first; 0: none */

/* What the listener answers to a call, on the temporary file or on the folder; 0: it is made. */
enum place { CLOSE, SYNC, FOLDER_SYNC, FOLDER_OPEN, PLACES };
static _Atomic int errors[PLACES];
static _Atomic int folder_syncs;

static int answer(const struct seccomp_data *call)
{
	char link[64], file[300];
	ssize_t bytes;

	if (call->nr == SYS_openat)
		return call->args[2] & O_DIRECTORY ? errors[FOLDER_OPEN] : 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", (int)call->args[0]);
	bytes = readlink(link, file, sizeof(file) - 1);
	file[bytes < 0 ? 0 : bytes] = '\0';
	if (strstr(file, ".tmp"))
		return errors[call->nr == SYS_close ? CLOSE : SYNC];
	if (call->nr == SYS_close || strcmp(file, folder))
		return 0;
	folder_syncs++;
	return errors[FOLDER_SYNC];
}

static void *listen_to_calls(void *arg)
{
	struct seccomp_notif call = { 0 };

	(void)arg;
	while (!__atomic_load_n(&listener, __ATOMIC_ACQUIRE))
		sched_yield();
	while (!ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call)) {
		struct seccomp_notif_resp response = { .id = call.id, .error = answer(&call.data) };

		if (!response.error)
			response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
		memset(&call, 0, sizeof(call));
	}
	return NULL;
}

static void start_listener(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };
	pthread_t thread;
	int fd;

	/* The thread is older than the filter, which is of this thread and those that it starts. */
	CHECK_EQ(pthread_create(&thread, NULL, listen_to_calls, NULL), 0);
	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	fd = MUST((int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
			       SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
	__atomic_store_n(&listener, fd, __ATOMIC_RELEASE);
}

static void put(const char *text)
{
	int fd = MUST(creat(path, 0600));

	MUST(write(fd, text, strlen(text)));
	close(fd);
}

static void check_content(const char *text)
{
	char content[100] = "";
	int fd = MUST(open(path, O_RDONLY));

	MUST(read(fd, content, sizeof(content) - 1));
	close(fd);
	CHECK(!strcmp(content, text));
}

static unsigned int names(void)
{
	DIR *listing = opendir(folder);
	unsigned int n = 0;

	while (readdir(listing))
		n++;
	closedir(listing);
	return n - 2;
}

static void set_limit(rlim_t bytes)
{
	const struct rlimit sizes = { bytes, RLIM_INFINITY };

	MUST(setrlimit(RLIMIT_FSIZE, &sizes));
}

static int64_t replace(unsigned int flags)
{
	struct tl_files_result result;
	struct tl_files *files = NULL;
	int n;

	CHECK_EQ(tl_files_create(&files, 1, LIB_FLAGS), 0);
	if (limit)
		set_limit((rlim_t)limit);
	CHECK_EQ(tl_files_write(files, AT_FDCWD, path, "new content", 11, 0, 0600,
				flags | TL_FILES_REPLACE, 0, NULL), 0);
	CHECK_EQ(tl_files_submit(files), 0);
	do {
		fd_set set;

		FD_ZERO(&set);
		FD_SET(tl_files_fd(files), &set);
		MUST(select(tl_files_fd(files) + 1, &set, NULL, NULL, NULL));
		/* The first part is written: what follows has the open descriptor. */
		set_limit(RLIM_INFINITY);
		n = tl_files_next(files, &result);
	} while (!n);
	CHECK_EQ(n, 1);
	tl_files_release(files, result.op);
	CHECK_EQ(tl_files_destroy(files), 0);
	return result.result;
}

static void check_failure(unsigned int flags, int64_t error)
{
	put("old");
	CHECK_EQ(replace(flags), error);
	for (enum place place = 0; place < PLACES; place++)
		errors[place] = 0;
	check_content("old");
	CHECK_EQ(names(), 1);
}

static void the_old_content_stays_after_an_error(void)
{
	for (unsigned int flags = 0; flags <= TL_FILES_SYNC; flags += TL_FILES_SYNC) {
		errors[CLOSE] = -EDQUOT;
		check_failure(flags, -EDQUOT);
	}
	errors[SYNC] = -EIO;
	check_failure(TL_FILES_SYNC, -EIO);
	errors[FOLDER_OPEN] = -EMFILE;
	check_failure(TL_FILES_SYNC, -EMFILE);
}

static void check_success(unsigned int flags, int syncs, int64_t expected)
{
	put("old");
	folder_syncs = 0;
	CHECK_EQ(replace(flags), expected);
	for (enum place place = 0; place < PLACES; place++)
		errors[place] = 0;
	CHECK_EQ(folder_syncs, syncs);
	check_content("new content");
	CHECK_EQ(names(), 1);
}

static void a_durable_replacement_synchronizes_its_folder(void)
{
	check_success(0, 0, 11);
	check_success(TL_FILES_SYNC, 1, 11);
	errors[FOLDER_SYNC] = -EIO;
	check_success(TL_FILES_SYNC, 1, -EIO);
	errors[FOLDER_SYNC] = -EINVAL;
	check_success(TL_FILES_SYNC, 1, 11);
}

static void check_all(void)
{
	start_listener();
	the_old_content_stays_after_an_error();
	a_durable_replacement_synchronizes_its_folder();
	limit = 4;
	the_old_content_stays_after_an_error();
	a_durable_replacement_synchronizes_its_folder();
}

/* Without a slash in the path, too. */
static void the_longest_names_are_replaced(void)
{
	char name[256];

	memset(name, 'n', 255);
	name[255] = '\0';
	MUST(chdir(folder));
	strcpy(path, name);
	for (unsigned int flags = 0; flags <= TL_FILES_SYNC; flags += TL_FILES_SYNC)
		check_success(flags, 0, 11);
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	check_success(TL_FILES_SYNC, 0, 11);
	MUST(unlink(path));
}

int main(void)
{
	alarm(300);
	CHECK(mkdtemp(folder));
	the_longest_names_are_replaced();
	snprintf(path, sizeof(path), "%s/file", folder);
	CHECK_EXITED(child_run(check_all), 0);
	MUST(unlink(path));
	MUST(rmdir(folder));
	return 0;
}
