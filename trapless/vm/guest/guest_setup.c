// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes a bare kernel into a guest in which ordinary programs run.
 *
 * This file owns which file systems are mounted where, the order in which modules are loaded, and
 * the switch to the host's root. A step that a kernel may not support (debugfs, a loopback device)
 * may fail. A step that the launcher asks for by name must succeed, or the run fails.
 */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fail.h"
#include "guest_setup.h"

#define LOWER "/trapless/lower"
#define SCRATCH "/trapless/scratch"
#define NEW_ROOT "/trapless/root"
/* virtio's 9p transport carries at most 500 KB a message; larger messages mean fewer exits. */
#define SHARE_OPTIONS "trans=virtio,version=9p2000.L,msize=512000,cache=loose,access=any"

struct mount_point {
	const char *type, *path, *options;
	bool required;
};

static const struct mount_point after_root[] = {
	{ "proc", "/proc", NULL, true },
	{ "sysfs", "/sys", NULL, true },
	{ "devtmpfs", "/dev", NULL, true },
	{ "devpts", "/dev/pts", "ptmxmode=666,gid=5,mode=620", false },
	{ "tmpfs", "/dev/shm", "mode=1777", true },
	{ "tmpfs", "/run", "mode=755", true },
	{ "debugfs", "/sys/kernel/debug", NULL, false },
	{ "tracefs", "/sys/kernel/tracing", NULL, false },
};

static const struct {
	const char *target, *path;
} links[] = {
	{ "/proc/self/fd", "/dev/fd" },
	{ "/proc/self/fd/0", "/dev/stdin" },
	{ "/proc/self/fd/1", "/dev/stdout" },
	{ "/proc/self/fd/2", "/dev/stderr" },
};

static void mount_or_fail(const char *type, const char *path, const char *options, bool required)
{
	/* It usually exists; one that is missing and cannot be made fails below. */
	mkdir(path, 0755);
	if (mount(type, path, type, 0, options) < 0 && errno != EBUSY && required)
		guest_fail("mount %s on %s: %s", type, path, strerror(errno));
}

void setup_early(void)
{
	int console;

	mkdir("/dev", 0755);
	if (mount("devtmpfs", "/dev", "devtmpfs", 0, NULL) < 0 && errno != EBUSY)
		guest_fail("mount devtmpfs: %s", strerror(errno));
	console = open("/dev/console", O_RDWR);
	if (console >= 0) {
		dup2(console, 0);
		dup2(console, 1);
		dup2(console, 2);
		if (console > 2)
			close(console);
	}
	mount_or_fail("sysfs", "/sys", NULL, true);
}

static void load_module(char *path)
{
	char *parameters = strchr(path, ' ');
	int fd;

	if (parameters)
		*parameters++ = '\0';
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		guest_fail("%s: %s", path, strerror(errno));
	if (syscall(SYS_finit_module, fd, parameters ? parameters : "", 0) < 0 && errno != EEXIST)
		guest_fail("the guest's kernel refused module %s: %s (see the kernel log)", path,
			  strerror(errno));
	close(fd);
}

static void load_modules(char *const *paths)
{
	for (; *paths; paths++)
		load_module(*paths);
}

/* The host's files below, files of this run above them, a scratch layer for what CMD writes. */
static void mount_host_root(void)
{
	static const char layers[] = "lowerdir=/trapless/files:" LOWER ","
				     "upperdir=" SCRATCH "/upper,workdir=" SCRATCH "/work";

	mkdir(LOWER, 0755);
	if (mount("host", LOWER, "9p", MS_RDONLY, SHARE_OPTIONS) < 0)
		guest_fail("mount the host's root by 9p: %s", strerror(errno));
	mkdir(SCRATCH, 0755);
	if (mount("tmpfs", SCRATCH, "tmpfs", 0, "mode=755") < 0)
		guest_fail("mount tmpfs: %s", strerror(errno));
	mkdir(SCRATCH "/upper", 0755);
	mkdir(SCRATCH "/work", 0755);
	mkdir(NEW_ROOT, 0755);
	if (mount("overlay", NEW_ROOT, "overlay", 0, layers) < 0)
		guest_fail("mount the overlay: %s", strerror(errno));
	if (chdir(NEW_ROOT) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
	    chdir("/") < 0)
		guest_fail("switch to the host's root: %s", strerror(errno));
}

static void loopback_up(void)
{
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return; /* a kernel without networking */
	ioctl(fd, SIOCSIFFLAGS, &request);
	close(fd);
}

void setup_guest(const struct guest_config *config)
{
	umask(0);
	load_modules(config->modules);
	if (config->host_root)
		mount_host_root();
	for (size_t i = 0; i < sizeof(after_root) / sizeof(*after_root); i++)
		mount_or_fail(after_root[i].type, after_root[i].path, after_root[i].options,
			      after_root[i].required);
	for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++)
		if (symlink(links[i].target, links[i].path) < 0 && errno != EEXIST)
			guest_fail("%s: %s", links[i].path, strerror(errno));
	loopback_up();
	if (sethostname("lab", 3) < 0)
		guest_fail("sethostname: %s", strerror(errno));
	umask(022);
	if (config->cwd && chdir(config->cwd) < 0)
		guest_fail("change to directory %s: %s", config->cwd, strerror(errno));
}
