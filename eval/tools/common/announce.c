// SPDX-License-Identifier: GPL-2.0-only
/*
 * See announce.h. What phases and settings mean is the experiments' business.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "announce.h"
#include "measure.h"

#define PRESENT (1ull << 63)
#define FRAME ((1ull << 55) - 1)

/*
 * The number is in this program's own text, too, but behind such a copy there is no address of its
 * page.
 */
#define MAGIC_HALF 0x74726170u	/* "trap" */

uint64_t announce_physical(const void *page)
{
	int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry = 0;

	if (map < 0 || pread(map, &entry, sizeof(entry), (off_t)((uintptr_t)page / ANNOUNCE_PAGE *
							  sizeof(entry))) != sizeof(entry))
		measure_fail("/proc/self/pagemap cannot be read: %m");
	close(map);
	if (!(entry & PRESENT) || !(entry & FRAME))
		measure_fail("the page is not in memory, or its address is not to be known");
	return (entry & FRAME) * ANNOUNCE_PAGE;
}

void announce_begin(struct announcement *page, uint64_t address, uint64_t region)
{
	page->region = region;
	page->address = address;
	__atomic_store_n(&page->magic, (uint64_t)MAGIC_HALF << 32 | (MAGIC_HALF ^ UINT32_MAX),
			 __ATOMIC_RELEASE);
}

void announce_next(struct announcement *page, uint64_t setting)
{
	page->setting = setting;
	__atomic_store_n(&page->phase, page->phase + 1, __ATOMIC_RELEASE);
}

bool announce_may_go_on(int wait_ms)
{
	struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
	int ready = poll(&input, 1, wait_ms);
	char line;

	if (ready < 0 && errno != EINTR)
		measure_fail("poll: %m");
	if (ready <= 0)
		return false;
	if (read(STDIN_FILENO, &line, 1) != 1)
		measure_fail("the observer has gone");
	return true;
}

void announce_await(void)
{
	while (!announce_may_go_on(-1))
		;
}
