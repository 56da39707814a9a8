/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Preparing the guest: file systems, kernel modules, network, root.
 */
#ifndef TRAPLESS_GUEST_SETUP_H
#define TRAPLESS_GUEST_SETUP_H

#include "guest_config.h"

/* What the channel needs: /dev and /sys. Stops the machine on failure. */
void setup_early(void);
/* Everything else, as config asks; calls guest_fail() on failure. */
void setup_guest(const struct guest_config *config);

#endif /* TRAPLESS_GUEST_SETUP_H */
