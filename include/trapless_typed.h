/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * Calls of a batch with typed arguments: tl_add_openat(batch, AT_FDCWD, path, O_RDONLY, 0) does
 * what TL_ADD(batch, SYS_openat, ...) does, and the compiler refuses a missing argument and warns
 * of one of another type. gcc 14 and newer refuse it, others with -Werror=int-conversion and
 * -Werror=incompatible-pointer-types. A program that wants these functions includes this file.
 *
 * There is a function for each call that programs make with files, sockets and event loops. Its
 * name and its number are those of the row in linux/trapless_calls.h, its arguments those of the
 * kernel. A function of a call that batches refuse does not compile either: the compiler says why.
 *
 * Each function returns the slot of the call, or -EAGAIN as tl_batch_add() does.
 */
#ifndef TRAPLESS_TYPED_H
#define TRAPLESS_TYPED_H

#include <trapless.h>

#ifdef __cplusplus
extern "C" {
#endif

struct epoll_event;
struct iovec;
struct msghdr;
struct open_how;
struct pollfd;
struct sockaddr;
struct stat;
struct statx;
struct timespec;

/*
 * The call in `slot` takes arguments from elsewhere: TL_RESULT(0) says that the first one is the
 * slot of an earlier call and stands for its result, TL_WORD64(2) that the third one is an address
 * and stands for the word there. Returns the slot, or the error that stands in its place. So it may
 * go around another function:
 *
 *	int file = tl_add_openat(batch, AT_FDCWD, path, O_RDONLY, 0);
 *	int got = tl_add_taking(batch, TL_RESULT(0), tl_add_read(batch, file, buffer, bytes));
 */
static inline int tl_add_taking(struct tl_batch *batch, uint32_t sources, int slot)
{
	if (slot < 0)
		return slot;
	batch->requests[slot].nr |= sources;
	batch->program |= TL_PROGRAM_STEPS;
	return slot;
}

/* ---- Numbers, from the table ------------------------------------------------------------- */

enum tl_typed_nr {
#define TL_ANY(name, nr) TL_TYPED_##name = (nr),
#define TL_NULL_MASK(name, nr, argument, why) TL_TYPED_##name = (nr),
#define TL_SELF_VALUE(name, nr, argument, bits, value, why) TL_TYPED_##name = (nr),
#define TL_BATCH_ONLY(name, nr, why) TL_TYPED_##name = (nr),
#define TL_REFUSED(name, nr, why)
#include <linux/trapless_calls.h>
#undef TL_ANY
#undef TL_NULL_MASK
#undef TL_SELF_VALUE
#undef TL_BATCH_ONLY
#undef TL_REFUSED
};

#if defined(__has_attribute)
#if __has_attribute(error)
#define TL_ANY(name, nr)
#define TL_NULL_MASK(name, nr, argument, why)
#define TL_SELF_VALUE(name, nr, argument, bits, value, why)
#define TL_BATCH_ONLY(name, nr, why)
#define TL_REFUSED(name, nr, why) \
	int tl_add_##name(struct tl_batch *batch, ...) __attribute__((error(why)));
#include <linux/trapless_calls.h>
#undef TL_ANY
#undef TL_NULL_MASK
#undef TL_SELF_VALUE
#undef TL_BATCH_ONLY
#undef TL_REFUSED
#endif
#endif

#define TL_TYPED(name, parameters, ...) \
	TL_TYPED_(name, parameters, __VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define TL_TYPED_(name, parameters, a0, a1, a2, a3, a4, a5, ...) \
	static inline int tl_add_##name parameters \
	{ \
		return tl_batch_add(batch, TL_CAST(uint32_t, TL_TYPED_##name), TL_ARG(a0), \
				    TL_ARG(a1), TL_ARG(a2), TL_ARG(a3), TL_ARG(a4), TL_ARG(a5)); \
	}
#define TL_TYPED0(name) TL_TYPED(name, (struct tl_batch *batch), 0)
#define TL_TYPED1(name, t0, a0) TL_TYPED(name, (struct tl_batch *batch, t0 a0), a0)
#define TL_TYPED2(name, t0, a0, t1, a1) \
	TL_TYPED(name, (struct tl_batch *batch, t0 a0, t1 a1), a0, a1)
#define TL_TYPED3(name, t0, a0, t1, a1, t2, a2) \
	TL_TYPED(name, (struct tl_batch *batch, t0 a0, t1 a1, t2 a2), a0, a1, a2)
#define TL_TYPED4(name, t0, a0, t1, a1, t2, a2, t3, a3) \
	TL_TYPED(name, (struct tl_batch *batch, t0 a0, t1 a1, t2 a2, t3 a3), a0, a1, a2, a3)
#define TL_TYPED5(name, t0, a0, t1, a1, t2, a2, t3, a3, t4, a4) \
	TL_TYPED(name, (struct tl_batch *batch, t0 a0, t1 a1, t2 a2, t3 a3, t4 a4), \
		 a0, a1, a2, a3, a4)
#define TL_TYPED6(name, t0, a0, t1, a1, t2, a2, t3, a3, t4, a4, t5, a5) \
	TL_TYPED(name, (struct tl_batch *batch, t0 a0, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5), \
		 a0, a1, a2, a3, a4, a5)

/* ---- Descriptors and what is in files ---------------------------------------------------- */

TL_TYPED4(openat, int, dirfd, const char *, path, int, flags, mode_t, mode)
TL_TYPED4(openat2, int, dirfd, const char *, path, struct open_how *, how, size_t, bytes)
TL_TYPED1(close, int, fd)
TL_TYPED3(read, int, fd, void *, buffer, size_t, bytes)
TL_TYPED3(write, int, fd, const void *, buffer, size_t, bytes)
TL_TYPED4(pread64, int, fd, void *, buffer, size_t, bytes, off_t, offset)
TL_TYPED4(pwrite64, int, fd, const void *, buffer, size_t, bytes, off_t, offset)
TL_TYPED3(readv, int, fd, const struct iovec *, parts, int, n)
TL_TYPED3(writev, int, fd, const struct iovec *, parts, int, n)
TL_TYPED3(lseek, int, fd, off_t, offset, int, whence)
TL_TYPED1(fsync, int, fd)
TL_TYPED1(fdatasync, int, fd)
TL_TYPED2(ftruncate, int, fd, off_t, bytes)
TL_TYPED4(fallocate, int, fd, int, mode, off_t, offset, off_t, bytes)
TL_TYPED4(fadvise64, int, fd, off_t, offset, off_t, bytes, int, advice)
TL_TYPED4(sendfile, int, to, int, from, off_t *, offset, size_t, bytes)
TL_TYPED6(copy_file_range, int, from, off_t *, from_offset, int, to, off_t *, to_offset, size_t,
	  bytes, unsigned int, flags)
TL_TYPED6(splice, int, from, off_t *, from_offset, int, to, off_t *, to_offset, size_t, bytes,
	  unsigned int, flags)
TL_TYPED1(dup, int, fd)
TL_TYPED3(dup3, int, fd, int, number, int, flags)
TL_TYPED3(fcntl, int, fd, int, command, unsigned long, argument)
TL_TYPED2(flock, int, fd, int, operation)
TL_TYPED2(pipe2, int *, ends, int, flags)
TL_TYPED2(memfd_create, const char *, name, unsigned int, flags)
TL_TYPED6(mmap, void *, address, size_t, bytes, int, protection, int, flags, int, fd, off_t, offset)
TL_TYPED2(munmap, void *, address, size_t, bytes)
TL_TYPED3(madvise, void *, address, size_t, bytes, int, advice)

/* ---- Names and attributes ---------------------------------------------------------------- */

#ifdef __x86_64__	/* other architectures have newfstatat alone */
TL_TYPED2(stat, const char *, path, struct stat *, stat)
TL_TYPED2(lstat, const char *, path, struct stat *, stat)
#endif
TL_TYPED2(fstat, int, fd, struct stat *, stat)
TL_TYPED4(newfstatat, int, dirfd, const char *, path, struct stat *, stat, int, flags)
TL_TYPED5(statx, int, dirfd, const char *, path, int, flags, unsigned int, mask, struct statx *,
	  statx)
TL_TYPED3(getdents64, int, fd, void *, entries, size_t, bytes)
TL_TYPED3(mkdirat, int, dirfd, const char *, path, mode_t, mode)
TL_TYPED3(unlinkat, int, dirfd, const char *, path, int, flags)
TL_TYPED5(renameat2, int, dirfd, const char *, path, int, new_dirfd, const char *, new_path,
	  unsigned int, flags)
TL_TYPED5(linkat, int, dirfd, const char *, path, int, new_dirfd, const char *, new_path, int,
	  flags)
TL_TYPED3(symlinkat, const char *, target, int, dirfd, const char *, path)
TL_TYPED4(readlinkat, int, dirfd, const char *, path, char *, buffer, size_t, bytes)
TL_TYPED2(fchmod, int, fd, mode_t, mode)
TL_TYPED3(fchmodat, int, dirfd, const char *, path, mode_t, mode)
TL_TYPED3(fchown, int, fd, uid_t, user, gid_t, group)
TL_TYPED5(fchownat, int, dirfd, const char *, path, uid_t, user, gid_t, group, int, flags)
TL_TYPED4(utimensat, int, dirfd, const char *, path, const struct timespec *, times, int, flags)
TL_TYPED4(faccessat2, int, dirfd, const char *, path, int, mode, int, flags)
TL_TYPED4(fgetxattr, int, fd, const char *, name, void *, value, size_t, bytes)
TL_TYPED5(fsetxattr, int, fd, const char *, name, const void *, value, size_t, bytes, int, flags)

/* ---- Sockets; lengths of addresses are of socklen_t -------------------------------------- */

TL_TYPED3(socket, int, domain, int, type, int, protocol)
TL_TYPED4(socketpair, int, domain, int, type, int, protocol, int *, ends)
TL_TYPED3(bind, int, fd, const struct sockaddr *, address, unsigned int, bytes)
TL_TYPED2(listen, int, fd, int, backlog)
TL_TYPED4(accept4, int, fd, struct sockaddr *, address, unsigned int *, bytes, int, flags)
TL_TYPED3(connect, int, fd, const struct sockaddr *, address, unsigned int, bytes)
TL_TYPED6(sendto, int, fd, const void *, buffer, size_t, bytes, int, flags,
	  const struct sockaddr *, address, unsigned int, address_bytes)
TL_TYPED6(recvfrom, int, fd, void *, buffer, size_t, bytes, int, flags, struct sockaddr *, address,
	  unsigned int *, address_bytes)
TL_TYPED3(sendmsg, int, fd, const struct msghdr *, message, int, flags)
TL_TYPED3(recvmsg, int, fd, struct msghdr *, message, int, flags)
TL_TYPED2(shutdown, int, fd, int, how)
TL_TYPED5(setsockopt, int, fd, int, level, int, name, const void *, value, unsigned int, bytes)
TL_TYPED5(getsockopt, int, fd, int, level, int, name, void *, value, unsigned int *, bytes)
TL_TYPED3(getsockname, int, fd, struct sockaddr *, address, unsigned int *, bytes)
TL_TYPED3(getpeername, int, fd, struct sockaddr *, address, unsigned int *, bytes)

/* ---- Waiting, and the process ------------------------------------------------------------ */

TL_TYPED1(epoll_create1, int, flags)
TL_TYPED4(epoll_ctl, int, epoll, int, operation, int, fd, struct epoll_event *, event)
#ifdef __x86_64__
TL_TYPED4(epoll_wait, int, epoll, struct epoll_event *, events, int, n, int, timeout_ms)
TL_TYPED3(poll, struct pollfd *, fds, unsigned int, n, int, timeout_ms)
#endif
TL_TYPED2(eventfd2, unsigned int, value, int, flags)
TL_TYPED2(clock_gettime, int, clock, struct timespec *, now)
TL_TYPED2(nanosleep, const struct timespec *, time, struct timespec *, left)
TL_TYPED3(getrandom, void *, buffer, size_t, bytes, unsigned int, flags)
TL_TYPED2(kill, pid_t, pid, int, signal)
TL_TYPED0(getpid)
TL_TYPED0(getppid)
TL_TYPED0(gettid)
TL_TYPED0(getuid)
TL_TYPED0(geteuid)

#undef TL_TYPED
#undef TL_TYPED_
#undef TL_TYPED0
#undef TL_TYPED1
#undef TL_TYPED2
#undef TL_TYPED3
#undef TL_TYPED4
#undef TL_TYPED5
#undef TL_TYPED6

#ifdef __cplusplus
}
#endif

#endif /* TRAPLESS_TYPED_H */
