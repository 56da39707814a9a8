// SPDX-License-Identifier: GPL-2.0-only
/*
 * Asynchronous files: what is read, listed and written is what plain calls would, at every size at
 * which the engine goes another way; errors are the kernel's; nothing stays open, and no temporary
 * file is left.
 */
#include "lib_check.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char folder[] = "/tmp/files.XXXXXX";
static const size_t sizes[] = { 0, 1, 4095, TL_FILES_ROOM - 1, TL_FILES_ROOM, TL_FILES_ROOM + 1,
				TL_FILES_ROOM + 4095, TL_FILES_ROOM + 4096, TL_FILES_ROOM + 4097,
				1 << 20, (3 << 20) + 17 };

static char byte_at(size_t i)
{
	return (char)(i * 7 + i / 251);
}

static unsigned int open_descriptors(void)
{
	DIR *listing = opendir("/proc/self/fd");
	unsigned int n = 0;

	while (readdir(listing))
		n++;
	closedir(listing);
	return n;
}

static struct tl_files *files_new(void)
{
	struct tl_files *files = NULL;

	CHECK_EQ(tl_files_create(&files, 8, LIB_FLAGS), 0);
	return files;
}

static void await(struct tl_files *files, struct tl_files_result *result)
{
	int n;

	CHECK_EQ(tl_files_submit(files), 0);
	while (!(n = tl_files_next(files, result))) {
		fd_set set;

		FD_ZERO(&set);
		FD_SET(tl_files_fd(files), &set);
		MUST(select(tl_files_fd(files) + 1, &set, NULL, NULL, NULL));
	}
	CHECK_EQ(n, 1);
}

static int64_t result_of(struct tl_files *files)
{
	struct tl_files_result result;

	await(files, &result);
	tl_files_release(files, result.op);
	return result.result;
}

static const char *path_of(const char *name)
{
	static char path[4][300];
	static unsigned int next;
	char *here = path[next++ % 4];

	snprintf(here, sizeof(path[0]), "%s/%s", folder, name);
	return here;
}

static void every_size_is_written_and_read(struct tl_files *files, unsigned int flags)
{
	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t bytes = sizes[i];
		char *data = malloc(bytes + 1);
		struct tl_files_result result;

		for (size_t k = 0; k < bytes; k++)
			data[k] = byte_at(k);
		CHECK_EQ(tl_files_write(files, AT_FDCWD, path_of("file"), data, bytes,
					O_CREAT | O_TRUNC, 0600, flags, 1, NULL), 0);
		CHECK_EQ(result_of(files), bytes);
		CHECK_EQ(tl_files_read(files, AT_FDCWD, path_of("file"), 7, NULL), 0);
		await(files, &result);
		CHECK_EQ(result.result, bytes);
		CHECK_EQ(result.user_data, 7);
		CHECK(!memcmp(result.data, data, bytes));
		tl_files_release(files, result.op);
		free(data);
	}
}

static void files_of_unknown_size_are_read(struct tl_files *files)
{
	struct tl_files_result result;

	CHECK_EQ(tl_files_read(files, AT_FDCWD, "/proc/self/status", 0, NULL), 0);
	await(files, &result);
	CHECK(result.result > 100 && !memcmp(result.data, "Name:", 5));
	tl_files_release(files, result.op);
}

static void errors_are_those_of_the_kernel(struct tl_files *files)
{
	char much[100000] = "";

	CHECK_EQ(tl_files_read(files, AT_FDCWD, path_of("absent"), 0, NULL), 0);
	CHECK_EQ(result_of(files), -ENOENT);
	CHECK_EQ(tl_files_read(files, AT_FDCWD, folder, 0, NULL), 0);
	CHECK_EQ(result_of(files), -EISDIR);
	CHECK_EQ(tl_files_list(files, AT_FDCWD, path_of("file"), 0, NULL), 0);
	CHECK_EQ(result_of(files), -ENOTDIR);
	CHECK_EQ(tl_files_write(files, AT_FDCWD, "/dev/full", much, sizeof(much), 0, 0, 0, 0,
				NULL), 0);
	CHECK_EQ(result_of(files), -ENOSPC);
	CHECK_EQ(tl_files_write(files, AT_FDCWD, path_of("no/file"), much, 1, O_CREAT, 0600,
				TL_FILES_REPLACE, 0, NULL), 0);
	CHECK_EQ(result_of(files), -ENOENT);
}

/* The new file does not take the place of a folder, and is gone then. */
static void a_failed_replacement_leaves_nothing(struct tl_files *files)
{
	struct tl_files_result result;

	MUST(mkdir(path_of("sub"), 0700));
	MUST(mkdir(path_of("sub/folder"), 0700));
	CHECK_EQ(tl_files_write(files, AT_FDCWD, path_of("sub/folder"), "x", 1, 0, 0600,
				TL_FILES_REPLACE | TL_FILES_SYNC, 0, NULL), 0);
	CHECK_EQ(result_of(files), -EISDIR);
	CHECK_EQ(tl_files_list(files, AT_FDCWD, path_of("sub"), 0, NULL), 0);
	await(files, &result);
	CHECK_EQ(result.result, 3 * 24 + 8);	/* ".", ".." and "folder" */
	tl_files_release(files, result.op);
	MUST(rmdir(path_of("sub/folder")));
	MUST(rmdir(path_of("sub")));
}

static void a_large_folder_is_listed_whole(struct tl_files *files)
{
	struct tl_files_result result;
	unsigned int n = 0, names = 3000;
	char name[300];

	MUST(mkdir(path_of("many"), 0700));
	for (unsigned int i = 0; i < names; i++) {
		snprintf(name, sizeof(name), "%s/many/%0200u", folder, i);
		close(MUST(open(name, O_CREAT | O_WRONLY, 0600)));
	}
	CHECK_EQ(tl_files_list(files, AT_FDCWD, path_of("many"), 0, NULL), 0);
	await(files, &result);
	for (int64_t at = 0; at < result.result; n++) {
		const struct dirent64 *entry = (void *)((char *)result.data + at);

		at += entry->d_reclen;
		if (entry->d_name[0] != '.') {
			snprintf(name, sizeof(name), "%s/many/%s", folder, entry->d_name);
			MUST(unlink(name));
		}
	}
	CHECK_EQ(n, names + 2);
	tl_files_release(files, result.op);
	MUST(rmdir(path_of("many")));
}

static void one_call_has_copies_of_its_paths_and_room(struct tl_files *files)
{
	struct tl_request call = TL_REQUEST(SYS_symlinkat, "target", AT_FDCWD, path_of("link"));
	struct tl_files_result result;
	char path[300];

	CHECK_EQ(tl_files_call(files, &call, 1u << 0 | 1u << 2, 0, 0, NULL), 0);
	CHECK_EQ(result_of(files), 0);
	strcpy(path, path_of("link"));
	call = TL_REQUEST(SYS_readlinkat, AT_FDCWD, path, 0, TL_FILES_ROOM);
	CHECK_EQ(tl_files_call(files, &call, 1u << 1, 1u << 2, 0, NULL), 0);
	memset(path, 'x', sizeof(path));
	await(files, &result);
	CHECK_EQ(result.result, 6);
	CHECK(!memcmp(result.data, "target", 6));
	tl_files_release(files, result.op);
	MUST(unlink(path_of("link")));
}

static void attributes_of_many_come_at_once(struct tl_files *files, unsigned int n)
{
	const char *kinds[] = { path_of("file"), path_of("absent"), folder };
	const char *paths[TL_ENTRIES_MAX];
	const struct tl_files_status *status;
	struct tl_files_result result;

	for (unsigned int i = 0; i < n; i++)
		paths[i] = kinds[i % 3];
	CHECK_EQ(tl_files_stat(files, AT_FDCWD, paths, n, 0, STATX_BASIC_STATS, 5, NULL), 0);
	await(files, &result);
	CHECK_EQ(result.result, n);
	status = result.data;
	for (unsigned int i = 0; i < n; i++) {
		CHECK_EQ(status[i].result, i % 3 == 1 ? -ENOENT : 0);
		if (i % 3 == 0)
			CHECK_EQ(status[i].x.stx_size, (3 << 20) + 17);
		if (i % 3 == 2)
			CHECK(S_ISDIR(status[i].x.stx_mode));
	}
	tl_files_release(files, result.op);
}

static void put_file(struct tl_files *files, size_t bytes)
{
	static char data[TL_FILES_ROOM + 5000];

	CHECK_EQ(tl_files_write(files, AT_FDCWD, path_of("file"), data, bytes, O_CREAT | O_TRUNC,
				0600, 0, 0, NULL), 0);
	CHECK_EQ(result_of(files), bytes);
}

/* More operations than the ring has slots, of which each other one is canceled. */
static void each_operation_completes_once(struct tl_files *files)
{
	enum { N = 2000 };
	static struct tl_files_op *op[N];
	static unsigned int completions[N];
	struct tl_files_result result;

	put_file(files, TL_FILES_ROOM + 5000);
	memset(completions, 0, sizeof(completions));
	for (unsigned int i = 0; i < N; i++) {
		CHECK_EQ(tl_files_read(files, AT_FDCWD, path_of("file"), i, &op[i]), 0);
		if (i % 100 == 99)
			CHECK_EQ(tl_files_submit(files), 0);
	}
	CHECK_EQ(tl_files_pending(files), N);
	for (unsigned int i = 0; i < N; i += 2)
		tl_files_cancel(files, op[i]);
	while (tl_files_pending(files)) {
		await(files, &result);
		completions[result.user_data]++;
		CHECK(result.result == -ECANCELED || result.result == TL_FILES_ROOM + 5000);
		CHECK(result.result >= 0 || result.user_data % 2 == 0);
		tl_files_release(files, result.op);
	}
	for (unsigned int i = 0; i < N; i++)
		CHECK_EQ(completions[i], 1);
}

#define PIPE_BYTES 65536

/* Submits a call that blocks behind what was added, and returns when a worker is inside it. */
static void block_a_worker(struct tl_files *files, int pipes[2])
{
	static char bytes[PIPE_BYTES + 1];
	struct tl_request call;
	int held = 0;

	MUST(pipe(pipes));
	CHECK_EQ(MUST(fcntl(pipes[1], F_SETPIPE_SZ, PIPE_BYTES)), PIPE_BYTES);
	call = TL_REQUEST(SYS_write, pipes[1], bytes, sizeof(bytes));
	CHECK_EQ(tl_files_call(files, &call, 0, 0, 1, NULL), 0);
	CHECK_EQ(tl_files_submit(files), 0);
	while (held < PIPE_BYTES) {
		sched_yield();
		MUST(ioctl(pipes[0], FIONREAD, &held));
	}
}

static void let_worker_go(int pipes[2])
{
	static char bytes[PIPE_BYTES + 1];
	const struct rlimit none = { RLIM_INFINITY, RLIM_INFINITY };

	for (ssize_t sum = 0; sum < (ssize_t)sizeof(bytes);)
		sum += MUST(read(pipes[0], bytes, sizeof(bytes)));
	MUST(setrlimit(RLIMIT_FSIZE, &none));
}

/* A call that blocks for ever keeps nobody: its memory stays, and so does its thread. */
static void an_end_waits_for_no_call_that_blocks(void)
{
	unsigned int descriptors = open_descriptors();
	struct tl_files *files = files_new();
	int pipes[2];

	block_a_worker(files, pipes);
	CHECK_EQ(tl_files_read(files, AT_FDCWD, path_of("file"), 0, NULL), 0);
	CHECK_EQ(tl_files_destroy(files), 1);
	let_worker_go(pipes);
	close(pipes[0]);
	close(pipes[1]);
	while (open_descriptors() > descriptors)
		usleep(10000);
}

/* What was opened for nobody, or half way through a large file, is closed. */
static void an_end_leaves_no_descriptor_open(void)
{
	unsigned int before = open_descriptors();

	for (unsigned int round = 0; round < 50; round++) {
		struct tl_files *files = files_new();

		for (unsigned int i = 0; i < 300; i++) {
			struct tl_request call = TL_REQUEST(SYS_openat, AT_FDCWD, path_of("file"),
							    O_RDONLY);

			CHECK_EQ(tl_files_call(files, &call, 1u << 1, 0, 0, NULL), 0);
			CHECK_EQ(tl_files_read(files, AT_FDCWD, path_of("file"), 0, NULL), 0);
		}
		CHECK_EQ(tl_files_submit(files), 0);
		usleep(100 * round);
		/* On a busy machine calls may still be under way, which the last worker ends. */
		CHECK(tl_files_destroy(files) >= 0);
	}
	while (open_descriptors() > before)
		usleep(10000);
}

/*
 * A replacement whose first request has made a temporary file, and then came to the limit of file
 * sizes. The only worker blocks in a write to a pipe, so the next request is not made.
 */
static struct tl_files *files_with_half_a_replacement(rlim_t limit, int pipes[2],
						      struct tl_files_op **op)
{
	static char bytes[PIPE_BYTES + 1];
	const struct rlimit small = { limit, RLIM_INFINITY };
	struct tl_files_result result;
	struct tl_files *files;

	MUST(mkdir(path_of("sub"), 0700));
	MUST(setrlimit(RLIMIT_FSIZE, &small));
	CHECK_EQ(tl_files_create(&files, 1, LIB_FLAGS), 0);
	CHECK_EQ(tl_files_write(files, AT_FDCWD, path_of("sub/file"), bytes, sizeof(bytes), 0, 0600,
				TL_FILES_REPLACE, 0, op), 0);
	block_a_worker(files, pipes);
	CHECK_EQ(tl_files_next(files, &result), 0);
	return files;
}

/* limit 0: the write has failed, and what is left to do is to tidy up. */
static void a_canceled_replacement_leaves_nothing(rlim_t limit)
{
	unsigned int descriptors = open_descriptors();
	struct tl_files_op *op;
	struct tl_files *files;
	int pipes[2];

	files = files_with_half_a_replacement(limit, pipes, &op);
	tl_files_cancel(files, op);
	let_worker_go(pipes);
	for (int i = 0; i < 2; i++) {
		struct tl_files_result result;

		await(files, &result);
		CHECK_EQ(result.result, result.user_data ? PIPE_BYTES + 1 :
					limit ? -ECANCELED : -EFBIG);
		tl_files_release(files, result.op);
	}
	CHECK_EQ(tl_files_destroy(files), 0);
	MUST(rmdir(path_of("sub")));
	close(pipes[0]);
	close(pipes[1]);
	CHECK_EQ(open_descriptors(), descriptors);
}

static void an_end_leaves_no_half_replacement(rlim_t limit)
{
	unsigned int descriptors = open_descriptors();
	struct tl_files_op *op;
	struct tl_files *files;
	int pipes[2];

	files = files_with_half_a_replacement(limit, pipes, &op);
	CHECK_EQ(tl_files_destroy(files), 1);
	let_worker_go(pipes);
	MUST(rmdir(path_of("sub")));
	close(pipes[0]);
	close(pipes[1]);
	while (open_descriptors() > descriptors)
		usleep(10000);
}

/* Whoever gave a descriptor up has no number left by which to close it. */
static void a_close_is_made(bool canceled)
{
	unsigned int descriptors = open_descriptors();
	struct tl_request closing = { .nr = SYS_close };
	struct tl_files *files = files_new();
	struct tl_files_op *op;

	closing.args[0] = (uint64_t)MUST(open("/", O_RDONLY));
	CHECK_EQ(tl_files_call(files, &closing, 0, 0, 0, &op), 0);
	if (canceled) {
		tl_files_cancel(files, op);
		CHECK_EQ(result_of(files), 0);
	}
	CHECK_EQ(tl_files_destroy(files), 0);
	CHECK_EQ(open_descriptors(), descriptors);
}

/* A file system may choose any error; here a filter does, for close and fsync. */
static void with_canceled_as_an_error(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ECANCELED),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };
	struct tl_files *files;

	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
	files = files_new();
	CHECK_EQ(tl_files_read(files, AT_FDCWD, "/", 0, NULL), 0);
	CHECK_EQ(result_of(files), -EISDIR);
	CHECK_EQ(tl_files_write(files, AT_FDCWD, path_of("file"), "x", 1, O_CREAT, 0600,
				TL_FILES_SYNC, 0, NULL), 0);
	CHECK_EQ(result_of(files), -ECANCELED);
}

static void an_error_is_no_call_that_was_not_made(void)
{
	CHECK_EXITED(child_run(with_canceled_as_an_error), 0);
}

static void a_child_has_no_engine(struct tl_files *files)
{
	int status;
	pid_t child = MUST(fork());

	if (!child) {
		struct tl_files_result result;

		CHECK_EQ(tl_files_read(files, AT_FDCWD, "/", 0, NULL), -EPERM);
		CHECK_EQ(tl_files_submit(files), -EPERM);
		CHECK_EQ(tl_files_next(files, &result), -EPERM);
		CHECK_EQ(tl_files_destroy(files), 0);
		_exit(0);
	}
	MUST(waitpid(child, &status, 0));
	CHECK_EQ(status, 0);
}

int main(void)
{
	static const struct rlimit few = { 400, 400 };	/* far fewer than operations */
	unsigned int descriptors = open_descriptors();
	struct tl_files *files = files_new();
	struct stat status;

	alarm(300);
	MUST(setrlimit(RLIMIT_NOFILE, &few));
	CHECK(mkdtemp(folder));
	every_size_is_written_and_read(files, 0);
	umask(0777);
	every_size_is_written_and_read(files, TL_FILES_SYNC | TL_FILES_REPLACE | TL_FILES_MODE);
	umask(022);
	MUST(stat(path_of("file"), &status));
	CHECK_EQ(status.st_mode & 0777, 0600);
	files_of_unknown_size_are_read(files);
	errors_are_those_of_the_kernel(files);
	a_failed_replacement_leaves_nothing(files);
	a_large_folder_is_listed_whole(files);
	attributes_of_many_come_at_once(files, 1);
	attributes_of_many_come_at_once(files, 2);
	attributes_of_many_come_at_once(files, TL_ENTRIES_MAX);
	CHECK_EQ(tl_files_stat(files, AT_FDCWD, NULL, 0, 0, 0, 0, NULL), -EINVAL);
	one_call_has_copies_of_its_paths_and_room(files);
	each_operation_completes_once(files);
	a_child_has_no_engine(files);
	CHECK_EQ(tl_files_destroy(files), 0);
	CHECK_EQ(open_descriptors(), descriptors);
	an_error_is_no_call_that_was_not_made();
	an_end_waits_for_no_call_that_blocks();
	an_end_leaves_no_descriptor_open();
	a_close_is_made(true);
	a_close_is_made(false);	/* it is not even submitted when the engine ends */
	for (rlim_t limit = 0; limit <= 4096; limit += 4096) {
		a_canceled_replacement_leaves_nothing(limit);
		an_end_leaves_no_half_replacement(limit);
	}
	MUST(unlink(path_of("file")));
	MUST(rmdir(folder));
	return 0;
}
