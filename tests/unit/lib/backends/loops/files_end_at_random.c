// SPDX-License-Identifier: GPL-2.0-only
/*
 * Asynchronous files at random: operations of all kinds, of which many are canceled at any moment,
 * some block, and engines end and processes fork meanwhile. No memory is written to after its
 * operation, each operation completes once, and no thread, descriptor or temporary file is left.
 * TL_SOAK_S in the environment makes it last so long; `make soak` does so.
 */
#include "lib_check.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define ROUNDS 24
#define OPERATIONS 600		/* more than the ring has slots */
#define TARGET_BYTES 512u
#define IDLE 0xa5		/* what memory without an operation is filled with */
#define SILENCE_MS 10000
#define LARGE (3 * TL_FILES_ROOM)

#ifdef __SANITIZE_THREAD__
#define THREADS 2u		/* this one, and the sanitizer's own */
#else
#define THREADS 1u
#endif

enum kind {
	READ_SMALL, READ_LARGE, READ_ABSENT, LIST, STAT_MANY, REPLACE, WRITE, CALL_OPEN, CALL_READ,
	BLOCK, KINDS,
};

struct operation {
	struct tl_files_op *op;		/* NULL: it is complete */
	enum kind kind;
	unsigned char target[TARGET_BYTES];
};

static char folder[] = "/tmp/files-at-random.XXXXXX";
static char small[64], large[64], written[64];
static struct operation operations[OPERATIONS];
static unsigned char source[LARGE];
static int file, pipes[2];
static bool blocks;		/* some calls of this round do */

static unsigned int entries_of(const char *path)
{
	DIR *listing = opendir(path);
	unsigned int n = 0;

	while (readdir(listing))
		n++;
	closedir(listing);
	return n;
}

static void add(struct tl_files *files, unsigned int i)
{
	const char *paths[] = { small, large, "/absent" };
	struct operation *operation = &operations[i];
	struct tl_request call;
	int error = 0;

	operation->kind = (enum kind)(random() % KINDS);
	switch (operation->kind) {
	case READ_SMALL:
	case READ_LARGE:
	case READ_ABSENT:
		error = tl_files_read(files, AT_FDCWD, paths[operation->kind], i, &operation->op);
		break;
	case LIST:
		error = tl_files_list(files, AT_FDCWD, folder, i, &operation->op);
		break;
	case STAT_MANY:
		error = tl_files_stat(files, AT_FDCWD, paths, 3, 0, STATX_BASIC_STATS, i,
				      &operation->op);
		break;
	case REPLACE:
	case WRITE:
		error = tl_files_write(files, AT_FDCWD, written, source, (size_t)random() % LARGE,
				       O_CREAT | O_TRUNC, 0600,
				       operation->kind == REPLACE ? TL_FILES_REPLACE : 0, i,
				       &operation->op);
		break;
	case CALL_OPEN:
		call = TL_REQUEST(SYS_openat, AT_FDCWD, small, O_RDONLY | O_CLOEXEC, 0);
		error = tl_files_call(files, &call, 1u << 1, 0, i, &operation->op);
		break;
	default:
		call = TL_REQUEST(SYS_pread64, file, operation->target, TARGET_BYTES, 0);
		if (operation->kind == BLOCK && blocks)
			call = TL_REQUEST(SYS_read, pipes[0], operation->target, 1);
		error = tl_files_call(files, &call, 0, 0, i, &operation->op);
	}
	CHECK_EQ(error, 0);
}

/* Completes one operation, which has nothing to do with its memory any more. */
static void complete(const struct tl_files_result *result)
{
	struct operation *operation = &operations[result->user_data];

	CHECK_EQ(result->op, operation->op);
	operation->op = NULL;
	if (result->result >= 0 && operation->kind == CALL_OPEN)
		MUST(close((int)result->result));
	if (result->result >= 0 && operation->kind == CALL_READ)
		CHECK(result->result == TARGET_BYTES && operation->target[0] == 's');
	if (result->result >= 0 && operation->kind <= READ_LARGE)
		CHECK_EQ(result->result, operation->kind == READ_SMALL ? TARGET_BYTES : LARGE);
	if (result->result != -ECANCELED)
		CHECK_EQ(result->result == -ENOENT, operation->kind == READ_ABSENT);
	memset(operation->target, IDLE, TARGET_BYTES);
}

static unsigned int take(struct tl_files *files)
{
	struct tl_files_result result;
	unsigned int n = 0;

	while (tl_files_next(files, &result) == 1) {
		complete(&result);
		tl_files_release(files, result.op);
		n++;
	}
	return n;
}

static void await_one(struct tl_files *files)
{
	struct pollfd ready = { .fd = tl_files_fd(files), .events = POLLIN };

	CHECK_EQ(poll(&ready, 1, SILENCE_MS), 1);
}

static void await_all(struct tl_files *files)
{
	while (tl_files_pending(files)) {
		if (!take(files))
			await_one(files);
	}
}

/*
 * The engine is its parent's: the child can do nothing with it but destroy it. AddressSanitizer's
 * memory may be locked in the child for ever, if another thread had the lock.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MAY_FORK false
#else
#define MAY_FORK true
#endif

static void fork_a_child(struct tl_files *files)
{
	pid_t child = MUST(fork());
	int status;

	if (!child) {
		struct tl_files *own;

		if (tl_files_read(files, AT_FDCWD, small, 0, NULL) != -EPERM ||
		    tl_files_destroy(files) || tl_files_create(&own, 2, LIB_FLAGS) ||
		    tl_files_destroy(own))
			_exit(1);
		_exit(0);
	}
	MUST(waitpid(child, &status, 0));
	CHECK_EQ(status, 0);
}

/* What is random in a round: how many operations, cancels, takes, and when the engine ends. */
static void run_round(void)
{
	static const unsigned int shares[] = { 0, 2, 10, 50 };
	unsigned int n = 1 + (unsigned int)random() % OPERATIONS;
	unsigned int canceled_percent = shares[random() % 4];
	struct tl_files *files = NULL;

	blocks = random() % 4 == 0;
	CHECK_EQ(tl_files_create(&files, 1 + (unsigned int)random() % 16, LIB_FLAGS), 0);
	for (unsigned int i = 0; i < n; i++) {
		add(files, i);
		if (random() % 16 == 0)
			CHECK_EQ(tl_files_submit(files), 0);
		if (random() % 64 == 0)
			take(files);
		if (random() % 100 < canceled_percent) {
			struct tl_files_op *op = operations[(unsigned int)random() % (i + 1)].op;

			if (op)
				tl_files_cancel(files, op);
		}
	}
	CHECK_EQ(tl_files_submit(files), 0);
	if (MAY_FORK && random() % 8 == 0)
		fork_a_child(files);
	usleep((unsigned int)random() % 3000);
	take(files);
	if (!blocks && random() % 2) {
		await_all(files);
		CHECK_EQ(tl_files_destroy(files), 0);
		return;
	}
	CHECK(tl_files_destroy(files) >= 0);
	/* Those that block get their byte, and their worker ends. */
	for (int i = 0; i < OPERATIONS; i++)
		MUST(write(pipes[1], source, 1));
}

/* All slots of the ring are those of canceled operations, and the last operation has none. */
static void an_operation_behind_canceled_ones_is_made(void)
{
	struct tl_files *files = NULL;

	CHECK_EQ(tl_files_create(&files, 1, LIB_FLAGS), 0);
	for (unsigned int i = 0; i < OPERATIONS; i++)
		add(files, i);
	for (unsigned int i = 0; i < OPERATIONS - 1; i++)
		tl_files_cancel(files, operations[i].op);
	CHECK_EQ(take(files), OPERATIONS - 1);
	await_one(files);
	await_all(files);
	CHECK_EQ(tl_files_destroy(files), 0);
}

/* Waits until the threads of a round are gone, and looks at what they have left. */
static void check_end(void)
{
	static unsigned int descriptors;	/* that the library keeps, too */
	char bytes[OPERATIONS];
	int left;

	while (entries_of("/proc/self/task") > 2 + THREADS)	/* ".", "..", and those */
		usleep(1000);
	MUST(ioctl(pipes[0], FIONREAD, &left));
	if (left)
		CHECK_EQ(MUST(read(pipes[0], bytes, sizeof(bytes))), left);
	if (!descriptors)
		descriptors = entries_of("/proc/self/fd");
	CHECK_EQ(entries_of("/proc/self/fd"), descriptors);
	CHECK_EQ(entries_of(folder), 5);	/* ".", "..", and the three files */
	for (unsigned int i = 0; i < OPERATIONS; i++) {
		struct operation *operation = &operations[i];

		if (operation->op)
			memset(operation->target, IDLE, TARGET_BYTES);
		for (unsigned int k = 0; k < TARGET_BYTES; k++)
			CHECK_EQ(operation->target[k], IDLE);
		operation->op = NULL;
	}
}

static void put(char *path, const char *name, size_t bytes)
{
	int fd;

	snprintf(path, sizeof(small), "%s/%s", folder, name);
	fd = MUST(open(path, O_CREAT | O_WRONLY, 0600));
	CHECK_EQ(MUST(write(fd, source, bytes)), bytes);
	close(fd);
}

int main(void)
{
	const char *seconds = getenv("TL_SOAK_S");
	time_t end = time(NULL) + (seconds ? atoi(seconds) : 0);

	CHECK(mkdtemp(folder));
	memset(source, 's', sizeof(source));
	put(small, "small", TARGET_BYTES);
	put(large, "large", LARGE);
	put(written, "written", 1);
	file = MUST(open(small, O_RDONLY));
	MUST(pipe2(pipes, O_CLOEXEC));
	for (unsigned int i = 0; i < OPERATIONS; i++)
		memset(operations[i].target, IDLE, TARGET_BYTES);
	an_operation_behind_canceled_ones_is_made();
	check_end();
	srandom((unsigned int)(seconds ? end : 1));
	for (unsigned int round = 0; round < ROUNDS || time(NULL) < end; round++) {
		run_round();
		check_end();
	}
	MUST(unlink(small));
	MUST(unlink(large));
	MUST(unlink(written));
	MUST(rmdir(folder));
	return 0;
}
