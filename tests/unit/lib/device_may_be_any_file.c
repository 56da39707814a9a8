// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whatever stands in the place of the module's device, a program gets plain calls, and TL_MODULE an
 * error. The batch says what is there. A container runtime makes a folder there where the host has
 * no such device. Nothing else than the device is opened: a FIFO would wait for its other end, and
 * a device may do anything.
 */
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include "lib_check.h"

static void make_nothing(void)
{
}

static void make_folder(void)
{
	MUST(mkdir(TL_DEVICE, 0755));
}

static void make_file(void)
{
	MUST(mknod(TL_DEVICE, S_IFREG | 0666, 0));
}

static void make_fifo(void)
{
	MUST(mknod(TL_DEVICE, S_IFIFO | 0666, 0));
}

static void make_socket(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = TL_DEVICE };
	int fd = MUST(socket(AF_UNIX, SOCK_STREAM, 0));

	MUST(bind(fd, (struct sockaddr *)&address, sizeof(address)));
	MUST(close(fd));
}

static void make_loop_of_links(void)
{
	MUST(symlink(TL_DEVICE, TL_DEVICE));
}

static void make_dangling_link(void)
{
	MUST(symlink("/dev/absent", TL_DEVICE));
}

static void make_link_through_a_file(void)
{
	MUST(symlink("/dev/file/trapless", TL_DEVICE));
	MUST(mknod("/dev/file", S_IFREG | 0666, 0));
}

/* A device that nobody has registered; without rights to make one, that of /dev/null. */
static void make_device(void)
{
	if (mknod(TL_DEVICE, S_IFCHR | 0666, makedev(10, 254)))
		MUST(symlink("/proc/self/fd/0", TL_DEVICE));
}

static void limit_descriptors(void)
{
	struct rlimit none = { .rlim_cur = 3, .rlim_max = 3 };

	MUST(setrlimit(RLIMIT_NOFILE, &none));
	make_device();
}

#define MISSING "the module is not loaded (/dev/trapless is missing)"
#define OTHER "something else is in the place of /dev/trapless"
#define FAILED "a call that sets up the module has failed, as in a sandbox"

static const struct {
	const char *name;
	void (*make)(void);
	const char *reason;
} places[] = {
	{ "nothing", make_nothing, MISSING },
	{ "a folder", make_folder, OTHER },
	{ "a file", make_file, OTHER },
	{ "a FIFO", make_fifo, OTHER },
	{ "a socket", make_socket, OTHER },
	{ "a loop of links", make_loop_of_links, FAILED },
	{ "a dangling link", make_dangling_link, MISSING },
	{ "a link through a file", make_link_through_a_file, FAILED },
	{ "a device", make_device, OTHER },
	{ "a device, and no descriptor is left", limit_descriptors, NULL },
};

static unsigned int place;

static void check_reason(const char *reason)
{
	const char *expected = places[place].reason;

	/* Without rights to make a device the last place is no device, and nothing is opened. */
	if (!expected)
		expected = geteuid() ? OTHER : "no descriptor is left (ulimit -n)";
	if (!reason || strcmp(reason, expected))
		FAIL("with %s in the device's place the reason is: %s", places[place].name, reason);
}

static void check_place(void)
{
	struct tl_batch *batch = NULL;
	struct tl_psc *psc = NULL;
	int error;

	MUST(mount("none", "/dev", "tmpfs", 0, NULL));
	places[place].make();
	error = tl_batch_create(&batch, 8, TL_MODULE);
	if (error >= 0)
		FAIL("%s is taken for the module", places[place].name);
	error = tl_batch_create(&batch, 8, 0);
	if (!error)
		error = tl_psc_create(&psc, 8, 0, 0);
	if (error)
		FAIL("with %s in the device's place, no object is made: %d", places[place].name,
		     error);
	CHECK_EQ(tl_batch_backend(batch), TL_BACKEND_PLAIN);
	check_reason(tl_batch_reason(batch));
	CHECK_EQ(tl_psc_backend(psc), TL_BACKEND_PLAIN);
	CHECK_EQ(TL_ADD(batch, SYS_getppid), 0);
	CHECK_EQ(tl_batch_flush(batch), 1);
	CHECK_EQ(tl_batch_result(batch, 0), getppid());
	CHECK(tl_switch_user(0) < 0);
	tl_batch_destroy(batch);
	tl_psc_destroy(psc);
}

int main(void)
{
	/* Of the caller's own files; a user that is not root becomes one among them. */
	if (unshare(CLONE_NEWNS | (geteuid() ? CLONE_NEWUSER : 0)))
		SKIP("this user may not have mounts of its own: %s", strerror(errno));
	MUST(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
	for (place = 0; place < sizeof(places) / sizeof(*places); place++)
		CHECK_EXITED(child_run(check_place), 0);
	return 0;
}
