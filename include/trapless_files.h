/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * Asynchronous files: what an event loop needs to make file calls without a hop to a thread for
 * each of them. The tl_files part of trapless.h, which includes it.
 *
 * An operation is a whole sequence, such as "open, read all, close", or one call. Operations of all
 * tasks are stored first; tl_files_submit() hands them over together, once in each turn of the
 * loop. Few workers make them, with the module or without it (tl_psc.3), and one descriptor becomes
 * readable for many that are complete. Calls that block do not delay quick ones as long as a worker
 * is left.
 *
 * Each operation that was added completes exactly once, also when it was canceled. Paths are
 * copied. Other memory that an operation is given belongs to it until tl_files_next() has returned
 * it.
 *
 * Concurrency: one thread at a time may use a struct tl_files, and it belongs to the process that
 * created it. In the child of a fork its functions return -EPERM.
 */
#ifndef TRAPLESS_FILES_H
#define TRAPLESS_FILES_H

#include <linux/stat.h>
#include <trapless.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TL_FILES_WORKERS 64u	/* a good bound: those that are not needed sleep */
#define TL_FILES_ROOM 65536u	/* bytes that one call may write to the operation's memory */

struct tl_files;
struct tl_files_op;

/* What tl_files_next() returns. `data` is valid until tl_files_release(). */
struct tl_files_result {
	uint64_t user_data;		/* as it was given */
	int64_t result;			/* what the operation says that it returns, or -errno */
	void *data;			/* the operation's memory, or NULL */
	struct tl_files_op *op;
};

/*
 * Creates an engine with at most `workers` workers, 1 to 4096. flags: TL_PLAIN or TL_MODULE as for
 * tl_batch_create(), or 0. Returns 0, or -errno if there is no memory, descriptor or thread.
 */
int tl_files_create(struct tl_files **files, unsigned int workers, unsigned int flags);
/*
 * Cancels what has not begun, lets the workers go, and frees everything. Returns 0, or the number
 * of operations whose calls still block: the memory that these were given has to stay until the
 * process ends, and the last worker frees the rest. It does not wait for calls that block.
 */
int tl_files_destroy(struct tl_files *files);
enum tl_backend tl_files_backend(const struct tl_files *files);

/*
 * Returns a descriptor that is readable when tl_files_next() has returned 0 before and may now
 * return 1 (as tl_psc_fd()). tl_files_destroy() closes it.
 */
int tl_files_fd(struct tl_files *files);
/* Hands over what was added. It never blocks. Returns 0 or -errno. */
int tl_files_submit(struct tl_files *files);
/*
 * Takes one operation that is complete: 1, or 0 if there is none. Continuations of operations that
 * need several requests are submitted by it.
 */
int tl_files_next(struct tl_files *files, struct tl_files_result *result);
/* Gives an operation's memory back. Each operation that tl_files_next() returned needs it once. */
void tl_files_release(struct tl_files *files, struct tl_files_op *op);
/*
 * Cancels an operation. If nothing of it was made, it completes with -ECANCELED. If it has begun,
 * the request that is under way is made to its end, with all its calls, and the operation keeps its
 * result if that was the last one. Otherwise descriptors are closed then, a temporary file is
 * removed, and it completes with -ECANCELED. One call of close(2) is always made.
 */
void tl_files_cancel(struct tl_files *files, struct tl_files_op *op);
/* Returns the number of operations that were added and that tl_files_next() has not returned. */
unsigned int tl_files_pending(const struct tl_files *files);

/*
 * Each of the following adds an operation and returns 0, -ENOMEM, or -EPERM in the child of a fork.
 * tl_files_stat() also returns -EINVAL. *op names it until it is released; op may be NULL. dirfd
 * and path are as for openat(2).
 */

/*
 * One system call. Bits of `strings` say which of the arguments are C strings, of which the
 * operation makes copies. A bit of `rooms`, one at most, names the argument that the operation
 * replaces by the address of its own memory of TL_FILES_ROOM bytes. The result is the call's. Where
 * nobody takes it, tl_files_destroy() closes a descriptor of openat(2), and of no other call.
 */
int tl_files_call(struct tl_files *files, const struct tl_request *call, unsigned int strings,
		  unsigned int rooms, uint64_t user_data, struct tl_files_op **op);
/* Opens a file, reads it to its end, closes it. data: its bytes; the result is their number. */
int tl_files_read(struct tl_files *files, int dirfd, const char *path, uint64_t user_data,
		  struct tl_files_op **op);
/* The same with a directory. data: struct linux_dirent64 (getdents64(2)), result bytes of them. */
int tl_files_list(struct tl_files *files, int dirfd, const char *path, uint64_t user_data,
		  struct tl_files_op **op);

/* The attributes of one of many files: result is 0 or -errno, and x valid if it is 0. */
struct tl_files_status {
	int64_t result;
	struct statx x;
};

/*
 * The attributes of n files (1 to TL_ENTRIES_MAX) by one request: statx(2) with `flags` and `mask`
 * for each path. data: n struct tl_files_status in the order of the paths; the result is n.
 */
int tl_files_stat(struct tl_files *files, int dirfd, const char *const *paths, unsigned int n,
		  int flags, unsigned int mask, uint64_t user_data, struct tl_files_op **op);

/*
 * fsync(2) before the file is closed: its data are on the disk then. The name of a new file is not
 * among them unless the file replaces another: then its folder is synchronized, too, if its file
 * system can do that. The folder must be readable. If nothing but its fsync(2) fails, the result is
 * that error, and `path` has the new content.
 */
#define TL_FILES_SYNC (1u << 0)
/*
 * The bytes go to a new file beside `path`, which then takes its place (rename(2)): another process
 * sees the old content or the new one, and after an error of any call until then the old one. The
 * new file has `mode`, not the permissions or the owner of the old one; a link is replaced and not
 * followed.
 */
#define TL_FILES_REPLACE (1u << 1)
#define TL_FILES_MODE (1u << 2)		/* the file gets `mode` whatever the umask: fchmod(2) */

/*
 * Opens a file with O_WRONLY, O_CLOEXEC and `open_flags`, writes `bytes` bytes and closes it. The
 * result is `bytes` or the first error. TL_FILES_REPLACE ignores open_flags.
 */
int tl_files_write(struct tl_files *files, int dirfd, const char *path, const void *data,
		   size_t bytes, int open_flags, mode_t mode, unsigned int flags,
		   uint64_t user_data, struct tl_files_op **op);

#ifdef __cplusplus
}
#endif

#endif /* TRAPLESS_FILES_H */
