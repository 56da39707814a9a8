// SPDX-License-Identifier: GPL-2.0-only
/*
 * A program whose loop is io_uring learns of completions by a poll request on the descriptor of a
 * tl_psc: none is left waiting, however the requests come.
 */
#include "uring.h"

#include <trapless.h>

#define ENTRIES 32u
#define REQUESTS 2000u
#define SILENCE_MS 10000

static struct uring uring;

/* The thread sleeps until the ring has a completion of its own. */
static void sleep_in_io_uring(int fd)
{
	struct pollfd ring = { .fd = uring.fd, .events = POLLIN };

	uring_poll(&uring, fd);
	if (MUST(poll(&ring, 1, SILENCE_MS)) != 1)
		FAIL("completions came, and the poll request on the descriptor does not end");
}

static unsigned int take_all(struct tl_psc *psc)
{
	struct tl_psc_completion completion;
	unsigned int taken = 0;

	for (; tl_psc_next(psc, &completion) == 1; taken++)
		CHECK_EQ(completion.result, getppid());
	return taken;
}

int main(void)
{
	unsigned int sent = 0, taken = 0;
	struct tl_psc *psc = NULL;
	int fd;

	uring = uring_open();
	CHECK_EQ(tl_psc_create(&psc, ENTRIES, 0, TL_MODULE | TL_COMPLETIONS), 0);
	CHECK_EQ(tl_psc_start(psc, 2), 0);
	fd = tl_psc_fd(psc);
	CHECK(fd >= 0);
	while (taken < REQUESTS) {
		while (sent < REQUESTS && TL_PSC_ADD(psc, SYS_getppid) >= 0)
			sent++;
		CHECK(tl_psc_notify(psc) >= 0);
		sleep_in_io_uring(fd);
		taken += take_all(psc);
	}
	CHECK_EQ(taken, REQUESTS);
	tl_psc_destroy(psc);
	close(uring.fd);
	return 0;
}
