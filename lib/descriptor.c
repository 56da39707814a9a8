// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The descriptors that the library keeps: of the module's device, of a pipe that wakes a loop, and
 * of an epoll set. It owns the question whether such a number still is the library's.
 *
 * A program may close what it did not open: daemons close all descriptors, and the next file that
 * is opened then gets the library's number. So each descriptor is used only by operations that fail
 * on any other file, or after a question that no other file answers in the same way: the module is
 * asked by the address of the ring, a pipe by its inode, an epoll set by a member that no other set
 * has. A thread that replaces the descriptor between question and use is not noticed.
 *
 * None is 0 to 2: a program that was started without these would write its messages there.
 *
 * Concurrency: any thread may call these functions at any time.
 */
#include "internal.h"
#include "enter.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define STANDARD_STREAMS 3
#define MISC_MAJOR 10u

static void close_raw(int fd)
{
	raw_syscall(SYS_close, (uint64_t)fd, 0, 0, 0, 0, 0);
}

int tl_descriptor_keep(long fd)
{
	long other;

	if (fd < 0 || fd >= STANDARD_STREAMS)
		return (int)fd;
	other = raw_syscall(SYS_fcntl, (uint64_t)fd, F_DUPFD_CLOEXEC, STANDARD_STREAMS, 0, 0, 0);
	close_raw((int)fd);
	return (int)other;
}

/* ---- The module's device ------------------------------------------------------------------- */

int tl_device_open(void)
{
	struct stat st;
	long result = raw_syscall(SYS_newfstatat, (uint64_t)AT_FDCWD, (uintptr_t)TL_DEVICE,
				  (uintptr_t)&st, 0, 0, 0);

	if (result < 0)
		return (int)result;
	/* Opening another file could have an effect: a container may put anything in this place. */
	if (!S_ISCHR(st.st_mode) || major(st.st_rdev) != MISC_MAJOR)
		return -ENODEV;
	return tl_descriptor_keep(raw_syscall(SYS_openat, (uint64_t)AT_FDCWD,
					      (uintptr_t)TL_DEVICE, O_RDWR | O_CLOEXEC, 0, 0, 0));
}

int tl_ring_check(int fd, const void *ring)
{
	long result = raw_syscall(SYS_ioctl, (uint64_t)fd, TL_IOC_RING, (uintptr_t)ring, 0, 0, 0);

	if (!result || result == -EBADF)
		return (int)result;
	return -EINVAL;
}

void tl_ring_close(int fd, const void *ring)
{
	long result = raw_syscall(SYS_ioctl, (uint64_t)fd, TL_IOC_RING, (uintptr_t)ring, 0, 0, 0);

	/* -EPERM: this is the child of a fork, and the ring its parent's. */
	if (!result || result == -EPERM)
		close_raw(fd);
}

/* ---- A pipe that wakes a loop -------------------------------------------------------------- */

int tl_wake_open(struct tl_wake *wake)
{
	struct stat st;
	int fds[2];
	long error = raw_syscall(SYS_pipe2, (uintptr_t)fds, O_NONBLOCK | O_CLOEXEC, 0, 0, 0, 0);

	if (error)
		return (int)error;
	fds[0] = tl_descriptor_keep(fds[0]);
	fds[1] = tl_descriptor_keep(fds[1]);
	error = fds[0] < 0 ? fds[0] : fds[1];
	if (error >= 0)
		error = raw_syscall(SYS_fstat, (uint64_t)fds[0], (uintptr_t)&st, 0, 0, 0, 0);
	if (error < 0) {
		for (int i = 0; i < 2; i++)
			if (fds[i] >= 0)
				close_raw(fds[i]);
		return (int)error;
	}
	*wake = (struct tl_wake){
		.read_fd = fds[0], .write_fd = fds[1], .device = st.st_dev, .inode = st.st_ino,
	};
	return 0;
}

static bool is_end(const struct tl_wake *wake, int fd)
{
	struct stat st;

	return !raw_syscall(SYS_fstat, (uint64_t)fd, (uintptr_t)&st, 0, 0, 0, 0) &&
	       st.st_dev == wake->device && st.st_ino == wake->inode;
}

void tl_wake_close(const struct tl_wake *wake)
{
	if (wake->read_fd >= 0 && is_end(wake, wake->read_fd))
		close_raw(wake->read_fd);
	if (wake->write_fd >= 0 && is_end(wake, wake->write_fd))
		close_raw(wake->write_fd);
}

void tl_wake_signal(const struct tl_wake *wake)
{
	if (is_end(wake, wake->write_fd))
		raw_syscall(SYS_write, (uint64_t)wake->write_fd, (uintptr_t)"", 1, 0, 0, 0);
}

unsigned int tl_wake_take(const struct tl_wake *wake)
{
	char signals[64];
	long n = 0;

	if (is_end(wake, wake->read_fd))
		n = raw_syscall(SYS_read, (uint64_t)wake->read_fd, (uintptr_t)signals,
				sizeof(signals), 0, 0, 0);
	return n > 0 ? (unsigned int)n : 0;
}

/* ---- An epoll set -------------------------------------------------------------------------- */

int tl_set_open(struct tl_set *set)
{
	struct epoll_event nothing = { .events = 0 };
	long error;

	set->fd = tl_descriptor_keep(raw_syscall(SYS_epoll_create1, EPOLL_CLOEXEC, 0, 0, 0, 0, 0));
	if (set->fd < 0)
		return set->fd;
	set->member = tl_descriptor_keep(raw_syscall(SYS_epoll_create1, EPOLL_CLOEXEC, 0, 0, 0, 0,
						     0));
	error = set->member;
	if (error >= 0)
		error = raw_syscall(SYS_epoll_ctl, (uint64_t)set->fd, EPOLL_CTL_ADD,
				    (uint64_t)set->member, (uintptr_t)&nothing, 0, 0);
	if (error >= 0)
		return 0;
	if (set->member >= 0)
		close_raw(set->member);
	close_raw(set->fd);
	set->fd = -1;
	return (int)error;
}

int tl_set_check(const struct tl_set *set, int member)
{
	struct epoll_event nothing = { .events = 0 };
	bool own = member == set->member;
	long error;

	/* The set asks its own member for no events, so this question changes nothing. */
	error = raw_syscall(SYS_epoll_ctl, (uint64_t)set->fd, own ? EPOLL_CTL_MOD : EPOLL_CTL_ADD,
			    (uint64_t)member, (uintptr_t)&nothing, 0, 0);
	if (own ? !error : error == -EEXIST)
		return 0;
	/* The set belongs to the program, and the question has added a member to it. */
	if (!error)
		raw_syscall(SYS_epoll_ctl, (uint64_t)set->fd, EPOLL_CTL_DEL, (uint64_t)member,
			    (uintptr_t)&nothing, 0, 0);
	return error == -EBADF ? -EBADF : -EINVAL;
}

void tl_set_close(const struct tl_set *set, int member)
{
	if (set->fd < 0)
		return;
	if (member >= 0 && !tl_set_check(set, member))
		close_raw(member);
	if (tl_set_check(set, set->member))
		return;
	close_raw(set->member);
	close_raw(set->fd);
}
