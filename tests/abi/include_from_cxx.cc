// SPDX-License-Identifier: GPL-2.0-only
// include_from_cxx.cc - the public headers are usable from C++ without a warning: it includes
// them and calls the inline functions once. It tests no behaviour of the library.
#include <trapless_paper.h>

#define TL_ANY(name, nr) (nr),
#define TL_NULL_MASK(name, nr, argument, why) (nr),
#define TL_BATCH_ONLY(name, nr, why) (nr),
#define TL_REFUSED(name, nr, why) (nr),
static const int numbers[] = {
#include <linux/trapless_calls.h>
	-1,
};

int main()
{
	struct tl_request requests[2] = {};
	struct tl_batch batch = {requests, requests, requests, requests + 2, 0, 0};

	if (tl_batch_add(&batch, 39, 1, 2, 3, 4, 5, 6) != 0)
		return 1;
	if (tl_batch_add(&batch, 39, 0, 0, 0, 0, 0, 0) != 1)
		return 2;
	if (tl_batch_add(&batch, 39, 0, 0, 0, 0, 0, 0) != -11)
		return 3;
	requests[1].result = -38;
	if (tl_batch_result(&batch, 1) != -38)
		return 4;
	if (requests[0].nr != 39 || requests[0].args[5] != 6 || requests[0].state != TL_SUBMITTED)
		return 5;
	return numbers[0] < -1;
}
