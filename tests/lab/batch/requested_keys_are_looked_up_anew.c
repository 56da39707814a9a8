// SPDX-License-Identifier: GPL-2.0-only
/*
 * A key that is taken out of a keyring in the middle of a batch is found before, and not after, as
 * by plain calls. Kernels with CONFIG_KEYS_REQUEST_CACHE remember the last key that a thread has
 * found until it returns to user mode, so the module has to make them forget it.
 */
#include <linux/keyctl.h>

#include "ring.h"

#define NAME "trapless-test"

int main(void)
{
	struct ring ring = ring_open(8);
	const long keyring = KEY_SPEC_PROCESS_KEYRING;
	long key = sys(SYS_add_key, "user", NAME, "secret", 6, keyring);

	CHECK(key > 0);
	ring_put(&ring, 0, SYS_request_key, "user", NAME, NULL, 0);
	ring_put(&ring, 1, SYS_keyctl, KEYCTL_UNLINK, key, keyring);
	ring_put(&ring, 2, SYS_request_key, "user", NAME, NULL, 0);
	CHECK_EQ(ring_batch(&ring, 0, 3), 3);
	CHECK_DONE(&ring, 0, key);
	CHECK_DONE(&ring, 1, 0);
	CHECK_DONE(&ring, 2, -ENOKEY);
	ring_close(&ring);
	return 0;
}
