/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The launcher's configuration of the guest: /trapless/config in the initramfs.
 *
 * The file is a sequence of NUL-terminated `key=value` records, written by records() in
 * trapless/vm/guest_tree.py. Keys that may repeat keep their order.
 */
#ifndef TRAPLESS_GUEST_CONFIG_H
#define TRAPLESS_GUEST_CONFIG_H

#include <stdbool.h>

struct guest_config {
	char *exec;		/* path to execute; NULL: look argv[0] up in PATH */
	char *cwd;
	bool host_root;		/* the root is the host's, read-only, under an overlay */
	bool alone;		/* no launcher: the command has the console, as alone.h says */
	bool supervisor;	/* the command is to run in supervisor mode */
	unsigned int flags;	/* TL_SWITCH_*, with supervisor */
	char **modules;		/* "path" or "path parameters" in order; NULL-terminated */
	char **argv;		/* NULL-terminated */
	char **env;		/* NULL-terminated */
};

/* Returns 0 or -errno; on -EINVAL *bad is the record that was not understood. */
int guest_config_read(struct guest_config *config, const char *path, const char **bad);

#endif /* TRAPLESS_GUEST_CONFIG_H */
